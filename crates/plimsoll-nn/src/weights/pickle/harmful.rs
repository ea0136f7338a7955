//! Functions that no file of weights needs, by which the file is refused.

/// Modules whose functions do something to the machine.
const HARMFUL: [&str; 18] = [
    "os",
    "posix",
    "nt",
    "ntpath",
    "posixpath",
    "subprocess",
    "sys",
    "shutil",
    "socket",
    "runpy",
    "ctypes",
    "importlib",
    "pty",
    "commands",
    "code",
    "webbrowser",
    "multiprocessing",
    "asyncio",
];
/// Functions of Python itself that do, or that reach others.
const HARMFUL_BUILTINS: [&str; 14] = [
    "eval",
    "exec",
    "execfile",
    "compile",
    "open",
    "getattr",
    "setattr",
    "delattr",
    "__import__",
    "input",
    "globals",
    "locals",
    "vars",
    "breakpoint",
];

/// Returns `true` if a name is of a function that a file with only weights does not call.
pub(super) fn is_harmful(global: &str) -> bool {
    let module = global.split('.').next().unwrap_or_default();
    let name = global.rsplit('.').next().unwrap_or_default();
    let of_python = matches!(module, "builtins" | "__builtin__");
    HARMFUL.contains(&module) || (of_python && HARMFUL_BUILTINS.contains(&name))
}
