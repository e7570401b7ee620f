//! Partitions and file systems, in the words of cloud-init.

use serde_json::{Map, Value, json};

/// `disk_setup` and `fs_setup`, as far as the spec asks for them.
pub fn modules(setup: &Value) -> Vec<(&'static str, Value)> {
    let list = |field: &str| setup[field].as_array().cloned().unwrap_or_default();
    let disks: Map<String, Value> = list("partitions").iter().map(disk).collect();
    let file_systems: Vec<Value> = list("filesystems").iter().map(file_system).collect();
    let disks = (!disks.is_empty()).then(|| ("disk_setup", disks.into()));
    let file_systems = (!file_systems.is_empty()).then(|| ("fs_setup", file_systems.into()));
    disks.into_iter().chain(file_systems).collect()
}

fn disk(partition: &Value) -> (String, Value) {
    let mut disk = json!({ "layout": layout(partition) });
    for (from, to) in [("tableType", "table_type"), ("overwrite", "overwrite")] {
        if !partition[from].is_null() {
            disk[to] = partition[from].clone();
        }
    }
    (partition["device"].as_str().unwrap_or_default().to_owned(), disk)
}

/// One partition or none, or a list of sizes in percent, with or without a type.
fn layout(partition: &Value) -> Value {
    let Some(parts) = partition["diskLayout"].as_array() else { return partition["layout"].clone() };
    let part = |part: &Value| match &part["partitionType"] {
        Value::Null => part["percentage"].clone(),
        kind => json!([part["percentage"], kind]),
    };
    parts.iter().map(part).collect()
}

fn file_system(wanted: &Value) -> Value {
    const NAMES: [(&str, &str); 7] = [
        ("label", "label"),
        ("filesystem", "filesystem"),
        ("device", "device"),
        ("partition", "partition"),
        ("overwrite", "overwrite"),
        ("replaceFS", "replace_fs"),
        ("extraOpts", "extra_opts"),
    ];
    let pairs = NAMES.iter().filter(|(from, _)| !wanted[*from].is_null());
    pairs.map(|(from, to)| ((*to).to_owned(), wanted[*from].clone())).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b5_disks_are_laid_out_as_cloud_init_reads_it() {
        let setup = json!({
            "partitions": [
                { "device": "/dev/vdb", "layout": true, "overwrite": false, "tableType": "gpt" },
                { "device": "/dev/vdc", "layout": false, "diskLayout": [{ "percentage": 33 }, { "percentage": 67, "partitionType": "82" }] },
            ],
            "filesystems": [
                { "device": "/dev/vdb", "filesystem": "ext4", "label": "etcd_disk", "partition": "auto", "replaceFS": "ntfs", "overwrite": true, "extraOpts": ["-E", "lazy_itable_init=1"] },
            ],
        });
        let expected = [
            (
                "disk_setup",
                json!({
                    "/dev/vdb": { "layout": true, "overwrite": false, "table_type": "gpt" },
                    "/dev/vdc": { "layout": [33, [67, "82"]] },
                }),
            ),
            (
                "fs_setup",
                json!([
                    { "device": "/dev/vdb", "filesystem": "ext4", "label": "etcd_disk", "partition": "auto", "replace_fs": "ntfs", "overwrite": true, "extra_opts": ["-E", "lazy_itable_init=1"] },
                ]),
            ),
        ];
        assert_eq!(modules(&setup), expected);
        assert_eq!(modules(&Value::Null), []);
    }
}
