//! Tests of the component table against the files and the code that it describes.

mod one_process;
mod operator_arguments;
mod rbac_files;
mod refused_settings;
mod watches;
