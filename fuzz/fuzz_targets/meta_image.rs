#![no_main]

plimsoll_fuzz::target!(meta_image);
