#![no_main]

plimsoll_fuzz::target!(serve_message);
