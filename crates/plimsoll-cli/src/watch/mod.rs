//! Watching runs from another process, which reads their files alone.

mod frame;
mod server;
mod terminal;

pub use frame::once;
pub use server::serve;
pub use terminal::show;
