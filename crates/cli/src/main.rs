//! The `paceline` binary; see the library beside it.

fn main() -> std::process::ExitCode {
    paceline_cli::run()
}
