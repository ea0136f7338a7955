//! Watching runs from another process, which reads their files alone.

mod bars;
mod frame;
mod page;
mod server;
mod terminal;
mod watched;

pub use frame::once;
pub use server::serve;
pub use terminal::show;
pub use watched::Watched;
