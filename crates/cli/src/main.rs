//! The binary `kai`: the command line with the plugins that come with it.

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    kai_cli::run(std::env::args_os(), &kai_engine::plugin::PluginSet::builtin())
}
