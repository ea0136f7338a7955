#![no_main]

plimsoll_fuzz::target!(adaptation_plan);
