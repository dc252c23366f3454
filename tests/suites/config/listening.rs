//! Mistakes in a gateway's listeners: ports that two listeners want, and problems that one bad
//! address must not hide.
//!
//! `cases.rs` has the files that these change, and all other mistakes in `[listen]`. It must not
//! open a port.

use crate::config::cases::Case;

#[rustfmt::skip]
pub const LISTEN_CASES: &[Case] = &[
    ("region", "0.0.0.0:7403", "0.0.0.0:7401",
        "region.toml:5: [listen]: public and peer cannot both listen on port 7401: give each a port of its own"),
    // A listener on all addresses also listens on this one.
    ("region", "127.0.0.1:7402", "127.0.0.1:7401",
        "region.toml:5: [listen]: public and admin cannot both listen on port 7401: give each a port of its own"),
    ("region", "0.0.0.0:7403", "[::]:7402",
        "region.toml:5: [listen]: admin and peer cannot both listen on port 7402: give each a port of its own"),
    ("region", "[store]", "[listen.trusted]\naddress = \"127.0.0.1:7402\"\ntenant_header = \"X-Tenant\"\n[store]",
        "region.toml:5: [listen]: admin and trusted cannot both listen on port 7402: give each a port of its own"),
    ("region", "[store]", "[listen.trusted]\naddress = \"127.0.0.2:7402\"\ntenant_header = \"X-Tenant\"\n[store]", ""),
    // A parsed address is checked even if another one is wrong.
    ("region", "public = \"0.0.0.0:7401\"\nadmin = \"127.0.0.1:7402\"", "public = \"everywhere\"\nadmin = \"0.0.0.0:7403\"",
        "region.toml:5: [listen]: admin and peer cannot both listen on port 7403: give each a port of its own\n\
         region.toml:5: the admin listener on 0.0.0.0:7403 is open to other machines: name a file with a token ([admin] token_file), or listen on 127.0.0.1\n\
         region.toml:6: [listen]: public: \"everywhere\" must be an IP address and a port, such as \"127.0.0.1:7401\""),
];
