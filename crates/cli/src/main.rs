//! The binary `kai`: the command line with the built-in plugins.

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    kai_cli::run(std::env::args_os(), &kai_components::Extensions::default())
}
