#![no_main]

plimsoll_fuzz::target!(model_file);
