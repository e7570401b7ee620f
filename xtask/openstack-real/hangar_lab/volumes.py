"""Volumes as sparse files: enough for every state that Cinder's API can show."""
import pathlib

from cinder.volume import driver
from oslo_config import cfg


class Driver(driver.VolumeDriver):
    VERSION = '1'

    def _file(self, volume):
        folder = pathlib.Path(cfg.CONF.state_path) / 'files'
        folder.mkdir(parents=True, exist_ok=True)
        return folder / volume['id']

    def _grow(self, volume, size):
        with self._file(volume).open('ab') as file:
            file.truncate(size << 30)

    def check_for_setup_error(self):
        pass

    def create_volume(self, volume):
        self._grow(volume, volume['size'])

    def delete_volume(self, volume):
        self._file(volume).unlink(missing_ok=True)

    def extend_volume(self, volume, new_size):
        self._grow(volume, new_size)

    def clone_image(self, context, volume, image_location, image_meta, image_service):
        with self._file(volume).open('wb') as file:
            image_service.download(context, image_meta['id'], file)
        self._grow(volume, volume['size'])
        return {}, True

    def ensure_export(self, context, volume):
        pass

    create_export = remove_export = terminate_connection = lambda self, *args, **kwargs: None

    def initialize_connection(self, volume, connector, **kwargs):
        return {'driver_volume_type': 'local', 'data': {'device_path': str(self._file(volume))}}

    def get_volume_stats(self, refresh=False):
        pool = {'pool_name': 'files', 'total_capacity_gb': 9000, 'free_capacity_gb': 9000, 'reserved_percentage': 0,
                'thin_provisioning_support': True, 'max_over_subscription_ratio': '20', 'provisioned_capacity_gb': 0,
                'multiattach': True}
        return {'volume_backend_name': 'files', 'vendor_name': 'hangar', 'driver_version': '1', 'storage_protocol': 'file',
                'pools': [pool]}
