//! The binary `kai`: the command line with the plugins that come with it.

fn main() -> std::process::ExitCode {
    kai_cli::run(std::env::args_os(), &kai_engine::plugin::PluginSet::builtin())
}
