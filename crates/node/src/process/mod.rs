//! A small kubelet that runs pods as local processes.
