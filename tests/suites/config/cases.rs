//! Configurations with one mistake each, and the exact message for it. Every message that a user
//! can meet stands here: nobody has read the message of a rule without a case.

pub const RING: &str = r#"deployment = "test"
seed = 7
place_by = "key"
[[region]]
name = "east"
weight = 1
[[region]]
name = "west"
weight = 1
[clock]
drift_ppm = 500
[failover]
mode = "manual"
"#;

pub const ROUTES: &str = r#"[[route]]
name = "charges"
methods = ["POST"]
path = "/v1/charges"
key = "required"
recovery = "probe"
probe = "/effects"
hold = "10s"
upstream_timeout = "5s"
[[route]]
name = "emails"
path = "/v1/emails"
key = "required"
recovery = "rerun"
[[route]]
name = "search"
path = "/v1/search"
key = "off"
"#;

pub const CREDENTIALS: &str = r#"[[credential]]
tenant = "acme"
sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"#;

pub const ISSUER: &str = r#"[[issuer]]
name = "accounts"
iss = "https://accounts.test"
jwks = "keys.json"
algorithms = ["ES256", "EdDSA"]
audience = ["https://api.test"]
tenant_claim = "tenant"
"#;

/// Two good keys, from RFC 7517 A.1 and RFC 8037 A.2, and one that is for encryption.
pub const KEYS: &str = r#"{"keys": [
{"kid": "one", "kty": "EC", "crv": "P-256", "use": "sig", "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"},
{"kid": "two", "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
{"kid": "sealed", "kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"}]}
"#;

pub const SECRET_KEYS: &str = r#"{"keys": [
{"kid": "shared", "kty": "oct", "k": "c2VjcmV0"},
{"kid": "private", "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "d": "c2VjcmV0"},
{"kid": "rsa", "kty": "RSA", "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw", "e": "AQAB"},
{"kid": "short", "kty": "OKP", "crv": "Ed25519", "x": "AQAB"},
{"kid": "named", "kty": "OKP", "crv": "Ed25519", "alg": "ES256", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
{"kid": "twice", "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
{"kid": "twice", "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
{"kid": "odd", "kty": "EC", "crv": "secp256k1", "x": "AQAB", "y": "AQAB"},
{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}
"#;

pub const REGION: &str = r#"region = "east"
ring = "ring.toml"
routes = "routes.toml"
credentials = "credentials.toml"
[listen]
public = "0.0.0.0:7401"
admin = "127.0.0.1:7402"
peer = "0.0.0.0:7403"
[store]
url = "postgres://gateway@127.0.0.1/onceway"
[upstream]
address = "http://127.0.0.1:7404"
shared = true
[peer]
certificate = "east.pem"
key = "east.key"
ca = "ca.pem"
[peer.addresses]
west = "west.internal:7403"
[provision]
admin_url_env = "ONCEWAY_TEST_UNSET"
[provision.publishers]
west = "host=west user=r dbname=onceway sslmode=disable"
"#;

/// A file, a text in it, the replacement of its first occurrence, and all messages, a line each.
pub type Case = (&'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
pub const CASES: &[Case] = &[
    ("ring", "deployment = \"test\"\n", "",
        "ring.toml:1: deployment is missing: name the deployment, such as deployment = \"payments\""),
    ("ring", "\"test\"", "\"te st\"",
        "ring.toml:1: deployment: must be 1 to 64 letters, digits, '-', '_' or '.'"),
    ("ring", "seed = 7", "sead = 7",
        "ring.toml:1: seed is missing: write a random number, such as seed = 0x followed by 16 hex digits from `openssl rand -hex 8`; it can never be changed\n\
         ring.toml:2: unknown key \"sead\": did you mean \"seed\"?"),
    ("ring", "seed = 7", "seed = -7",
        "ring.toml:2: seed: must be a whole number from 0 to 2^64 - 1"),
    ("ring", "place_by = \"key\"\n", "",
        "ring.toml:1: place_by is missing: say \"tenant\" (a customer's writes stay in one region) or \"key\" (the finest spread); it can never be changed"),
    ("ring", "\"key\"", "\"region\"",
        "ring.toml:3: place_by: must be \"tenant\" or \"key\", not \"region\""),
    ("ring", "name = \"west\"", "name = \"east\"",
        "ring.toml:7: region east is listed twice: list each region once"),
    ("ring", "name = \"west\"", "name = \"West\"",
        "ring.toml:8: [[region]]: name: \"West\": a region name must be of a-z, 0-9 and '-', start with a letter and not end with '-'"),
    ("ring", "name = \"east\"\nweight = 1", "name = \"east\"",
        "ring.toml:4: [[region]]: weight is missing: write 1, or 0 for an edge that owns no keys"),
    ("ring", "weight = 1", "weight = 10001",
        "ring.toml:6: [[region]]: weight: must be a whole number from 0 to 10000"),
    ("ring", "drift_ppm = 500", "drift_ppm = 500\nmargin = 50",
        "ring.toml:12: [clock]: margin: must be a span of time in quotes, from \"1ms\" to \"10s\", not a whole number"),
    ("ring", "[clock]", "[[pin]]\ntenant = \"acme\"\nregions = [\"north\"]\n[clock]",
        "ring.toml:10: the pin of tenant acme names region north, which the ring does not have: add or drop it"),
    ("ring", "seed = 7", "seed = 7\nheartbeat = \"10ms\"",
        "ring.toml:3: heartbeat: \"10ms\" is out of range: use \"50ms\" to \"5s\""),
    ("ring", "seed = 7", "seed = 7\nmax_life = \"31d\"",
        "routes.toml:1: route \"charges\": its keys live for 2678410s, which is more than max_life 31d of ring.toml (hold, settle_time, retention and tombstone together): shorten retention, or raise max_life in all regions\n\
         routes.toml:10: route \"emails\": its keys live for 2678430s, which is more than max_life 31d of ring.toml (hold, settle_time, retention and tombstone together): shorten retention, or raise max_life in all regions"),
    ("ring", "seed = 7", "seed = 7\nmax_life = 30",
        "ring.toml:3: max_life: must be a span of time in quotes, from \"1s\" to \"3650d\", not a whole number, or \"never\""),
    ("ring", "seed = 7", "seed = ",
        "ring.toml:2: not TOML: string values must be quoted, expected literal string"),
    ("routes", "recovery = \"probe\"\n", "",
        "routes.toml:1: route \"charges\": recovery is missing: nobody can choose for you what happens to a key in doubt. Write recovery = \"rerun\" (run again: the upstream is idempotent by key or checks the token), \"probe\" (ask the upstream's status address, given as probe) or \"park\" (wait for an operator)"),
    ("routes", "recovery = \"rerun\"", "recovery = \"retry\"",
        "routes.toml:14: route \"emails\": recovery: must be \"rerun\" or \"probe\" or \"park\", not \"retry\""),
    ("routes", "recovery = \"rerun\"", "recovry = \"rerun\"",
        "routes.toml:10: route \"emails\": recovery is missing: nobody can choose for you what happens to a key in doubt. Write recovery = \"rerun\" (run again: the upstream is idempotent by key or checks the token), \"probe\" (ask the upstream's status address, given as probe) or \"park\" (wait for an operator)\n\
         routes.toml:14: route \"emails\": unknown key \"recovry\": did you mean \"recovery\"?"),
    ("routes", "recovery = \"rerun\"", "recovery = \"rerun\"\nprobe = \"/p\"",
        "routes.toml:15: route \"emails\": probe belongs to recovery = \"probe\": remove it, or state that recovery"),
    ("routes", "probe = \"/effects\"\n", "",
        "routes.toml:1: route \"charges\": probe is missing: recovery = \"probe\" asks the upstream there, such as probe = \"/effects\""),
    ("routes", "\"/effects\"", "\"http://x/effects\"",
        "routes.toml:7: route \"charges\": probe: \"http://x/effects\" must be a path of the upstream, such as \"/effects\""),
    ("routes", "recovery = \"probe\"", "recovery = \"probe\"\nmax_attempts = 2",
        "routes.toml:7: route \"charges\": max_attempts belongs to recovery = \"rerun\": remove it"),
    ("routes", "hold = \"10s\"", "hold = \"9s\"",
        "routes.toml:1: route \"charges\": hold 9s is too short: 8945ms of it can be relied on (clock drift 500 ppm, margin 50ms), but claiming (4s), the upstream (upstream_timeout 5s) and some room (100ms) need 9100ms; lengthen hold or shorten upstream_timeout"),
    ("routes", "hold = \"10s\"", "hold = \"10\"",
        "routes.toml:8: route \"charges\": hold: \"10\" is no span of time: write a whole number and a unit (us, ms, s, m, h, d), such as \"10s\" or \"250ms\""),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nwait = \"11s\"",
        "routes.toml:1: route \"charges\": wait 11s is longer than hold 10s: shorten wait"),
    ("routes", "hold = \"10s\"", "hold = \"2m\"\nretention = \"2m\"",
        "routes.toml:1: route \"charges\": retention 2m must be longer than hold 2m and settle_time 0s together: lengthen retention"),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nretention = \"70s\"\ntombstone = \"10s\"",
        "routes.toml:1: route \"charges\": retention 70s and tombstone 10s together must be longer than the retry window 80s (hold 10s, settle_time 0s, and of ring.toml lease 10s and beyond 1m): a client that retries through the loss of a region would run its request again; lengthen retention"),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nstored_limit = \"0B\"",
        "routes.toml:9: route \"charges\": stored_limit: \"0B\" is out of range: use \"1B\" to \"256MiB\""),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nbody_limit = 1024",
        "routes.toml:9: route \"charges\": body_limit: must be a size in quotes, from \"0B\" to \"256MiB\", not a whole number"),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nfinal = [\"2xx\"]\nnothing_happened = [204]",
        "routes.toml:10: route \"charges\": status 204 is listed both as final and as nothing-happened: decide which"),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nfinal = [\"6xx\"]",
        "routes.toml:9: route \"charges\": final: \"6xx\" is no status: write 404, \"4xx\" or \"400-407\", from 200 to 599"),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nreplay_headers = [\"Set-Cookie\"]",
        "routes.toml:9: route \"charges\": replay_headers: \"Set-Cookie\" describes one connection, one moment or one client and is never replayed: remove it"),
    ("routes", "name = \"emails\"", "name = \"charges\"",
        "routes.toml:10: route \"charges\" is listed twice: give each route a name of its own"),
    ("routes", "path = \"/v1/emails\"", "path = \"/v1/charges\"\nmethods = [\"POST\"]",
        "routes.toml:10: route \"emails\" is never reached: route \"charges\" before it takes all of /v1/charges; put the narrower route first"),
    ("routes", "path = \"/v1/charges\"", "path = \"v1/charges\"",
        "routes.toml:4: route \"charges\": path: path \"v1/charges\" must start with '/'"),
    ("routes", "[\"POST\"]", "[\"post\"]",
        "routes.toml:3: route \"charges\": methods: \"post\" is no method: use GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    ("routes", "key = \"off\"", "key = \"off\"\nhold = \"1s\"",
        "routes.toml:19: route \"search\": hold has no effect where key = \"off\": remove it, or handle keys"),
    ("routes", "key = \"off\"", "key = \"none\"",
        "routes.toml:18: route \"search\": key: must be \"required\" or \"optional\" or \"off\", not \"none\""),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\nsyntax = \"loose\"",
        "routes.toml:10: route \"charges\": syntax: must be \"lenient\" or \"strict\", not \"loose\""),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\nmismatch = 400",
        "routes.toml:10: route \"charges\": mismatch: must be 422 or 409"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\nfingerprint = { headers = [\"Traceparent\"] }",
        "routes.toml:10: route \"charges\" [route.fingerprint]: headers: \"Traceparent\" may differ between two tries of one request: remove it"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\nfingerprint = { headers = [\"X-Forwarded-Proto\"] }",
        "routes.toml:10: route \"charges\" [route.fingerprint]: headers: \"X-Forwarded-Proto\" may differ between two tries of one request: remove it"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\ndialect = \"stripe\"\nmismatch = 409",
        "routes.toml:11: route \"charges\": mismatch has no effect where dialect = \"stripe\", which answers 400: remove it"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.key_policy]\nmin_length = 0",
        "routes.toml:11: route \"charges\" [route.key_policy]: min_length: must be a whole number from 1 to 255"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.key_policy]\nmin_length = 40\nmax_length = 20",
        "routes.toml:11: route \"charges\" [route.key_policy]: min_length 40 is more than max_length 20"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.key_policy]\nalphabet = \"ascii\"",
        "routes.toml:11: route \"charges\" [route.key_policy]: alphabet: must be \"visible\" or \"url-safe\" or \"hex\", not \"ascii\""),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.key_policy]\nform = \"uuid4\"",
        "routes.toml:11: route \"charges\" [route.key_policy]: form: must be \"any\" or \"uuid\" or \"uuid-v4\" or \"uuid-v7\", not \"uuid4\""),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.key_policy]\nform = \"uuid-v4\"\nmax_length = 32",
        "routes.toml:11: route \"charges\" [route.key_policy]: form \"uuid-v4\" has 36 characters, which the lengths exclude"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.key_policy]\nform = \"uuid\"\nalphabet = \"hex\"",
        "routes.toml:12: route \"charges\" [route.key_policy]: form \"uuid\" has dashes, which \"hex\" excludes"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.key_policy]\nentropy_bits = 33",
        "routes.toml:11: route \"charges\" [route.key_policy]: entropy_bits: must be a whole number from 0 to 32"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.key_policy]\nentropy = 32",
        "routes.toml:11: route \"charges\" [route.key_policy]: unknown key \"entropy\": known here are alphabet, entropy_bits, form, max_length, min_length"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\nkey_policy = \"uuid\"",
        "routes.toml:10: route \"charges\": key_policy must be a table, not a text"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.fingerprint]",
        "routes.toml:10: route \"charges\" [route.fingerprint]: say include = [\"/amount\"] (only these fields count) or exclude = [\"/metadata\"] (all but these) or headers = [\"Stripe-Account\"], or remove the table"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.fingerprint]\ninclude = [\"/a\"]\nexclude = [\"/b\"]",
        "routes.toml:10: route \"charges\" [route.fingerprint]: include and exclude are both written: keep one"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.fingerprint]\ninclude = []",
        "routes.toml:11: route \"charges\" [route.fingerprint]: include: must name 1 to 64 fields, not 0"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.fingerprint]\ninclude = [\"amount\"]",
        "routes.toml:11: route \"charges\" [route.fingerprint]: include: \"amount\" is no JSON pointer to a field: it must begin with '/', as in \"/amount\" or \"/items/*/note\""),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.fingerprint]\nexclude = [\"/a~b\"]",
        "routes.toml:11: route \"charges\" [route.fingerprint]: exclude: \"/a~b\" is no JSON pointer to a field: '~' must be written \"~0\", and '/' in a name \"~1\", as in \"/amount\" or \"/items/*/note\""),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\n[route.fingerprint]\nexclude = [\"/a\", \"/a\"]",
        "routes.toml:11: route \"charges\" [route.fingerprint]: exclude: \"/a\" is listed twice"),
    ("routes", "key = \"off\"", "key = \"off\"\n[route.fingerprint]\ninclude = [\"/a\"]",
        "routes.toml:19: route \"search\": fingerprint has no effect where key = \"off\": remove it, or handle keys"),
    ("credentials", "sha256 = \"ba78", "sha256 = \"sk_secret_ba78",
        "credentials.toml:3: [[credential]]: sha256: must be 64 hex digits, as `printf %s TOKEN | sha256sum` prints them; never write the token itself"),
    ("credentials", "[[credential]]\n", "[[credential]]\ntoken = \"sk_secret\"\n",
        "credentials.toml:2: [[credential]]: unknown key \"token\": known here are principal, sha256, tenant"),
    ("credentials", "[[credential]]\ntenant = \"acme\"\nsha256 = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n", "[[credential]]\ntenant = \"acme\"\nsha256 = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n[[credential]]\ntenant = \"globex\"\nsha256 = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n",
        "credentials.toml:6: [[credential]]: this token is listed already, for tenant acme: list it once"),
    ("credentials", "[[credential]]\ntenant = \"acme\"\nsha256 = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n", "",
        "credentials.toml:1: no credential is listed, so nobody could send a key: write a [[credential]] with tenant and sha256, or an [[issuer]]"),
    ("credentials", "tenant = \"acme\"", "tenant = \"acme\"\nprincipal = \"\"",
        "credentials.toml:3: [[credential]]: principal: must not be empty"),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nbind = \"user\"",
        "routes.toml:9: route \"charges\": bind: must be \"tenant\" or \"principal\", not \"user\""),
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nbind = \"principal\"",
        "credentials.toml:1: [[credential]]: principal is missing: a route has bind = \"principal\", so say whose token this is, such as principal = \"ledger-service\""),
    ("region", "[store]", "[listen.trusted]\naddress = \"127.0.0.1:7405\"\n[store]",
        "region.toml:9: [listen.trusted]: tenant_header is missing: name the header in which the front names the tenant, such as tenant_header = \"X-Tenant\""),
    ("region", "[store]", "[listen.trusted]\naddress = \"0.0.0.0:7405\"\ntenant_header = \"X-Tenant\"\n[store]",
        "region.toml:10: [listen.trusted]: whoever reaches 0.0.0.0:7405 can ask as any tenant: write from = [\"10.0.0.0/8\"] with the front's addresses, or listen on 127.0.0.1"),
    ("region", "[store]", "[listen.trusted]\naddress = \"0.0.0.0:7405\"\ntenant_header = \"X-Tenant\"\nfrom = []\n[store]",
        "region.toml:12: [listen.trusted]: from: must name at least one range of addresses"),
    ("region", "[store]", "[listen.trusted]\naddress = \"0.0.0.0:7405\"\ntenant_header = \"X-Tenant\"\nfrom = [\"0.0.0.0/0\"]\n[store]",
        "region.toml:12: [listen.trusted]: from: \"0.0.0.0/0\" is everybody: name the front's own addresses"),
    ("region", "[store]", "[listen.trusted]\naddress = \"127.0.0.1:7405\"\ntenant_header = \"Authorization\"\n[store]",
        "region.toml:11: [listen.trusted]: tenant_header: \"Authorization\" means something else already: let the front use a header of its own"),
    ("region", "[store]", "[listen.trusted]\naddress = \"127.0.0.1:7405\"\ntenant_header = \"X-Tenant\"\nprincipal_header = \"x-tenant\"\n[store]",
        "region.toml:12: [listen.trusted]: tenant_header and principal_header must be two headers"),
    ("region", "region = \"east\"", "region = \"north\"",
        "region.toml:1: region north is not in the ring, which has east, west: add it there (weight 0 for an edge), or name another"),
    ("region", "region = \"east\"\n", "",
        "region.toml:1: region is missing: say which region of ring.toml this is, such as region = \"us-east\""),
    ("region", "ring = \"ring.toml\"", "ring = \"rings.toml\"",
        "region.toml:2: cannot read rings.toml: No such file or directory (os error 2)"),
    ("region", "ring = \"ring.toml\"", "ring = \"ri\\nng.toml\"",
        "region.toml:2: cannot read ri\\nng.toml: No such file or directory (os error 2)"),
    ("region", "west = \"west.internal:7403\"\n", "",
        "region.toml:18: [peer.addresses] has no west: add west = \"...\", its peer listener, host:port"),
    ("region", "west = \"west.internal:7403\"", "west = \"west.internal\"",
        "region.toml:19: [peer.addresses]: west: \"west.internal\" must be host:port, such as \"eu-west.example.com:7403\""),
    ("region", "west = \"west.internal:7403\"", "west = \"west.internal:7403\"\neast = \"e:1\"\nnorth = \"n:1\"",
        "region.toml:20: [peer.addresses] names east, which is this region: remove it\n\
         region.toml:21: [peer.addresses] names north, which the ring does not have: remove it"),
    ("region", "127.0.0.1:7402", "0.0.0.0:7402",
        "region.toml:5: the admin listener on 0.0.0.0:7402 is open to other machines: name a file with a token ([admin] token_file), or listen on 127.0.0.1"),
    ("region", "127.0.0.1:7402", "localhost:7402",
        "region.toml:7: [listen]: admin: \"localhost:7402\" must be an IP address and a port, such as \"127.0.0.1:7401\""),
    ("region", "[store]", "[listen.tls]\ncertificate = \"public.pem\"\n[store]",
        "region.toml:9: [listen.tls]: key is missing: name the file with the private key of the certificate, PEM"),
    ("region", "[store]", "[listen.tls]\ncert = \"public.pem\"\nkey = 1\n[store]",
        "region.toml:9: [listen.tls]: certificate is missing: name the file with the certificate for clients and its intermediates, PEM\n\
         region.toml:10: [listen.tls]: unknown key \"cert\": known here are certificate, key\n\
         region.toml:11: [listen.tls]: key: must be a text in quotes, not a whole number"),
    ("region", "[store]", "[listen.limits]\nconnections = 0\nconnections_per_ip = \"many\"\nhead_time = \"1ms\"\n[store]",
        "region.toml:10: [listen.limits]: connections: must be a whole number from 1 to 1000000\n\
         region.toml:11: [listen.limits]: connections_per_ip: must be a whole number from 1 to 1000000, not a text\n\
         region.toml:12: [listen.limits]: head_time: \"1ms\" is out of range: use \"100ms\" to \"10m\""),
    ("region", "[store]", "proxy_protocol = \"v1\"\ntrusted_proxies = [\"0.0.0.0/0\"]\n[listen.cors]\norigins = [\"https://Shop.example/\"]\n[store]",
        "region.toml:9: [listen]: proxy_protocol: must be \"none\" or \"v2\", not \"v1\"\n\
         region.toml:10: [listen]: trusted_proxies: \"0.0.0.0/0\" is everybody: name the front's own addresses\n\
         region.toml:12: [listen.cors]: origins: \"https://Shop.example/\" must be an origin as browsers write it, such as \"https://shop.example\""),
    ("region", "[store]", "proxy_protocol = \"v2\"\n[store]",
        "region.toml:9: [listen]: proxy_protocol = \"v2\" needs trusted_proxies, as whoever connects could write any address: write trusted_proxies = [\"10.0.0.0/8\"] with the load balancer's addresses"),
    ("region", "[store]", "[listen.limits]\nrequests = 0\nbodies = 5\n[store]",
        "region.toml:10: [listen.limits]: requests: must be a whole number from 1 to 1000000\n\
         region.toml:11: [listen.limits]: bodies: must be a size in quotes, from \"1MiB\" to \"1024GiB\", not a whole number"),
    ("region", "[store]", "[listen.limits]\nwrite_stall = 5\nbody_stal = \"5s\"\nidle_time = \"10s\"\n[store]",
        "region.toml:9: [listen.limits]: idle_time must not be below head_time: a connection whose first head is slow would be cut as idle\n\
         region.toml:10: [listen.limits]: write_stall: must be a span of time in quotes, from \"100ms\" to \"10m\", not a whole number\n\
         region.toml:11: [listen.limits]: unknown key \"body_stal\": did you mean \"body_stall\"?"),
    ("region", "shared = true\n", "",
        "region.toml:11: [upstream]: shared is missing: say true if any region's upstream can tell whether an effect happened anywhere, false if each knows its own only"),
    ("region", "shared = true", "shared = \"yes\"",
        "region.toml:13: [upstream]: shared: must be true or false, not a text"),
    ("region", "shared = true", "shared = false",
        "region.toml:11: [upstream.elsewhere] has no west, but route \"charges\" probes and the upstreams are not shared: add its upstream's address, or write shared = true if any upstream can answer for all"),
    ("region", "\"http://127.0.0.1:7404\"", "\"https://127.0.0.1:7404\"",
        "region.toml:11: [upstream]: https://127.0.0.1:7404 is a bare address, and a certificate names a host: write the name that it must have as server_name in its tls table"),
    ("region", "\"http://127.0.0.1:7404\"", "\"https://user@pay.example/v1\"",
        "region.toml:12: [upstream]: address: must be http://host:port or https://host:port, without user, path or query"),
    ("region", "[peer]", "[upstream.tls]\nserver_name = \"10.0.0.1\"\nmin = \"1.1\"\nca = \"none.pem\"\n[peer]",
        "region.toml:14: [upstream.tls]: has no effect, as no address is https://: write https://, or remove the table\n\
         region.toml:15: [upstream.tls]: server_name: must be the name of a host, such as \"api.example.com\"\n\
         region.toml:16: [upstream.tls]: min: must be \"1.2\" or \"1.3\", not \"1.1\""),
    ("region", "[peer]", "[upstream.credentials]\nheader = \"Host\"\nvalue = \"Bearer sk\"\n[peer]",
        "region.toml:15: [upstream.credentials]: header: \"Host\" is written by this gateway itself: name another header\n\
         region.toml:16: [upstream.credentials]: value is a secret: write value_env with the name of an environment variable, or \
         value_file with the path of a file, that holds the header's value, such as \"Bearer sk_live_...\""),
    ("region", "[peer]", "[upstreams.pay]\naddresses = []\nhost = \"a b\"\nconnections = 0\nwrite_idle = \"1h\"\nmax_age = \"1ms\"\nkeep_idl = 1\n[peer]",
        "region.toml:15: [upstreams.pay]: addresses: must hold at least one address\n\
         region.toml:16: [upstreams.pay]: host: must be \"upstream\" (as its address is written), \"keep\" (the client's) or a host's name\n\
         region.toml:17: [upstreams.pay]: connections: must be a whole number from 1 to 10000\n\
         region.toml:18: [upstreams.pay]: write_idle: \"1h\" is out of range: use \"0s\" to \"10m\"\n\
         region.toml:19: [upstreams.pay]: max_age: \"1ms\" is out of range: use \"1s\" to \"1d\"\n\
         region.toml:20: [upstreams.pay]: unknown key \"keep_idl\": did you mean \"keep_idle\"?"),
    ("region", "[peer]", "[upstreams.pay]\naddresses = [\"https://pay.example\"]\n[upstreams.pay.tls]\ncertificate = \"us.pem\"\n[peer]",
        "region.toml:17: [upstreams.pay.tls]: certificate is written without its private key: add key"),
    ("region", "[peer]", "[upstreams]\npay = \"https://pay.example\"\n[peer]",
        "region.toml:15: [upstreams]: pay must be a table, not a text"),
    ("region", "[peer]", "[upstreams.\"pay me\"]\naddresses = [\"https://pay.example\"]\n[peer]",
        "region.toml:14: [upstreams.pay me]: \"pay me\" must be 1 to 64 letters, digits, '-', '_' or '.'"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\nkey_from = [\"X-Key\"]\nforward_key_header = \"Cookie\"",
        "routes.toml:10: route \"charges\": key_from: \"X-Key\" must be \"header:\" and the header's name, such as \"header:Idempotency-Key\"\n\
         routes.toml:11: route \"charges\": forward_key_header: \"Cookie\" has a meaning of its own: name another header"),
    ("routes", "upstream_timeout = \"5s\"", "upstream_timeout = \"5s\"\nkey_from = [\"header:X-Key\", \"header:x-key\"]\nforward_key = \"raw\"",
        "routes.toml:10: route \"charges\": key_from: x-key stands there twice: remove one\n\
         routes.toml:11: route \"charges\": forward_key: must be \"quoted\" or \"bare\" or \"as-sent\", not \"raw\""),
    ("routes", "recovery = \"rerun\"", "recovery = \"rerun\"\nforward_key = \"as-sent\"",
        "routes.toml:15: route \"emails\": forward_key = \"as-sent\" gives \"abc\" and abc, which are one key here, to the upstream as two, \
         so recovery = \"rerun\" would run twice: write \"quoted\" or \"bare\", or syntax = \"strict\""),
    ("routes", "key = \"off\"", "key = \"off\"\nupstream = \"pay\"",
        "region.toml: route \"search\" goes to upstream \"pay\", which is not here: add [upstreams.pay] with its addresses"),
    ("region", "[peer]", "[per]",
        "region.toml:14: unknown key \"per\": did you mean \"peer\"?\n\
         region.toml:18: [peer]: certificate is missing: name the region's certificate; `onceway certs` makes one\n\
         region.toml:18: [peer]: key is missing: name the private key of the certificate; `onceway certs` makes one\n\
         region.toml:18: [peer]: ca is missing: name the certificate of the deployment's authority; `onceway certs` makes one"),
    ("region", "ca = \"ca.pem\"\n", "",
        "region.toml:14: [peer]: ca is missing: name the certificate of the deployment's authority; `onceway certs` makes one"),
    ("region", "west = \"host=west user=r dbname=onceway sslmode=disable\"\n", "",
        "region.toml:22: [provision.publishers] has no west: add west = \"...\", the libpq connection string of its Postgres"),
    ("region", "user=r ", "",
        "region.toml:23: [provision.publishers]: west: has no user=: write a libpq connection string, such as \"host=... port=5432 user=... dbname=...\""),
    ("region", "ONCEWAY_TEST_UNSET\"\n", "X\"\ngateway_role = \"Gateway\"\n",
        "region.toml:22: [provision]: gateway_role: \"Gateway\" must be a role's name of at most 63 of a-z, 0-9 and '_'"),
    ("region", "region = \"east\"", "region = \"east\"\ndrain = \"0s\"",
        "region.toml:2: drain: \"0s\" is out of range: use \"1s\" to \"10m\""),
    ("region", "[upstream]", "[quota]\nburst = 0\n[upstream]",
        "region.toml:11: [quota]: limits nothing: say how many keys a tenant may start per second here, such as new_keys_per_second = 100, or look_ups_per_second, misses_per_second or live_keys\n\
         region.toml:12: [quota]: burst: must be a whole number from 1 to 1000000"),
    ("region", "[upstream]", "[quota]\nmisses_per_second = 0\nlook_ups_per_second = 9\nburst = 2\n[upstream]",
        "region.toml:12: [quota]: misses_per_second: must be a whole number from 1 to 1000000\n\
         region.toml:14: [quota]: burst is that of new_keys_per_second, which is missing: add it"),
    ("region", "[upstream]", "[quota]\nlive_keys = 1000000001\n[upstream]",
        "region.toml:12: [quota]: live_keys: must be a whole number from 1 to 1000000000"),
    ("region", "[upstream]", "[quota]\nlook_ups_per_second = 9\nnew_keys_per_second = 10\n[upstream]",
        "region.toml:12: [quota]: look_ups_per_second 9 must not be below new_keys_per_second 10: each request that starts a key takes one for as long as it runs"),
    ("region", "[upstream]\n", "[upstream.health]\nevery = \"10ms\"\n[upstream]\n",
        "region.toml:11: [upstream.health]: path is missing: name a path of the upstream that answers 200 to 399 while it is well, such as path = \"/healthz\"\n\
         region.toml:12: [upstream.health]: every: \"10ms\" is out of range: use \"100ms\" to \"1m\""),
    ("region", "[upstream]\n", "[upstream.health]\npath = \"healthz\"\nsick_after = \"5s\"\n[upstream]\n",
        "region.toml:12: [upstream.health]: path: \"healthz\" must be a path on the upstream, such as \"/healthz\"\n\
         region.toml:13: [upstream.health]: sick_after 5s must be at least two checks long (every 2s and within 1s, twice): lengthen it"),
    ("region", "region = \"east\"", "region = \"east\"\nshadow = \"on\"",
        "region.toml:2: shadow: must be true or false, not a text"),
    ("region", "[upstream]", "[log]\nformat = \"xml\"\n[upstream]",
        "region.toml:12: [log]: format: must be \"text\" or \"json\", not \"xml\""),
    ("region", "[upstream]", "[log]\nlevel = \"inof\"\n[upstream]",
        "region.toml:12: [log]: level: \"inof\" is no level: did you mean \"info\"?"),
    ("region", "[upstream]", "[log]\nlevel = \"onceway=debug,loud\"\n[upstream]",
        "region.toml:12: [log]: level: \"loud\" is no level: write off, error, warn, info, debug or trace, or a part with its level, such as \"onceway=debug\""),
    ("region", "[upstream]", "pool = 1\n[upstream]",
        "region.toml:11: [store]: pool: must be a whole number from 2 to 1000"),
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
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nmode = \"async\"",
        "routes.toml:9: route \"charges\": mode: must be \"sync\" or \"prefer\" or \"accept\", not \"async\""),
    ("routes", "upstream_timeout = \"5s\"\n", "upstream_timeout = \"5s\"\n[route.accept]\nmax_runs = 2\n",
        "routes.toml:10: route \"charges\": [route.accept] has no effect where mode = \"sync\": remove it, or write mode = \"prefer\" or \"accept\""),
    ("routes", "upstream_timeout = \"5s\"\n", "upstream_timeout = \"5s\"\nmode = \"accept\"\n[route.accept]\nmax_runs = 0\nbackof = \"1s\"\n",
        "routes.toml:12: route \"charges\" [route.accept]: max_runs: must be a whole number from 1 to 1000\n\
         routes.toml:13: route \"charges\" [route.accept]: unknown key \"backof\": did you mean \"backoff\"?"),
    ("routes", "upstream_timeout = \"5s\"\n", "upstream_timeout = \"5s\"\nmode = \"accept\"\n[route.accept]\nbackoff = \"10m\"\n",
        "routes.toml:11: route \"charges\" [route.accept]: backoff is longer than backoff_most: shorten backoff, or lengthen backoff_most"),
    ("routes", "upstream_timeout = \"5s\"\n", "upstream_timeout = \"5s\"\nmode = \"accept\"\nretention = \"1h\"\n",
        "routes.toml:1: route \"charges\": request_retention 1d is longer than retention 1h: shorten request_retention, or lengthen retention"),
    ("routes", "upstream_timeout = \"5s\"\n", "upstream_timeout = \"5s\"\nmode = \"accept\"\n[route.accept]\nkeep_headers = [\"Cookie\"]\n",
        "routes.toml:12: route \"charges\" [route.accept]: keep_headers: \"Cookie\" is a credential: it is stored only where requests are sealed ([accept] key_env)"),
    ("region", "[upstream]", "[accept]\nkey_file = \"absent\"\n[upstream]",
        "region.toml:12: [accept]: key_file: cannot read absent: No such file or directory (os error 2)"),
    ("region", "[upstream]", "[accept]\nkey_file = \"ring.toml\"\n[upstream]",
        "region.toml:12: [accept]: key_file: ring.toml must hold 32 bytes as base64: `openssl rand -base64 32` makes such a key"),
    ("region", "[upstream]", "[accept]\nkey_env = \"ONCEWAY_TEST_UNSET\"\n[upstream]",
        "region.toml:12: [accept]: key_env: the environment variable ONCEWAY_TEST_UNSET is not set: set it to the secret"),
];

/// A text in the issuer, its replacement, and all messages, a line each.
#[rustfmt::skip]
pub const ISSUER_CASES: &[(&str, &str, &str)] = &[
    ("name = \"accounts\"\n", "",
        "credentials.toml:1: [[issuer]]: name is missing: name the issuer, such as name = \"accounts\"; messages call it so"),
    ("iss = \"https://accounts.test\"\n", "",
        "credentials.toml:1: issuer \"accounts\": iss is missing: write what its tokens have as iss, exactly, such as iss = \"https://accounts.example.com\""),
    ("algorithms = [\"ES256\", \"EdDSA\"]\n", "",
        "credentials.toml:1: issuer \"accounts\": algorithms is missing: pin what its keys sign with, such as algorithms = [\"ES256\"]; there is no default"),
    ("\"ES256\", \"EdDSA\"", "",
        "credentials.toml:5: issuer \"accounts\": algorithms: must name at least one algorithm"),
    ("\"ES256\"", "\"HS256\"",
        "credentials.toml:5: issuer \"accounts\": algorithms: must be \"ES256\" or \"ES384\" or \"EdDSA\" or \"RS256\" or \"RS384\" or \"RS512\" or \"PS256\" or \"PS384\" or \"PS512\", not \"HS256\""),
    ("\"ES256\"", "\"none\"",
        "credentials.toml:5: issuer \"accounts\": algorithms: must be \"ES256\" or \"ES384\" or \"EdDSA\" or \"RS256\" or \"RS384\" or \"RS512\" or \"PS256\" or \"PS384\" or \"PS512\", not \"none\""),
    ("\"ES256\", ", "",
        "keys.json: key \"one\": fits none of the issuer's algorithms: pin its algorithm, or remove the key"),
    ("audience = [\"https://api.test\"]\n", "",
        "credentials.toml:1: issuer \"accounts\": audience is missing: write what its tokens for this gateway have as aud, such as audience = [\"https://api.example.com\"]"),
    ("\"https://api.test\"", "",
        "credentials.toml:6: issuer \"accounts\": audience: must name at least one audience"),
    ("tenant_claim = \"tenant\"\n", "",
        "credentials.toml:1: issuer \"accounts\": tenant_claim is missing: name the claim that holds the tenant, such as tenant_claim = \"tenant\", or \"sub\""),
    ("jwks = \"keys.json\"\n", "",
        "credentials.toml:1: issuer \"accounts\": jwks is missing: name the file of its public keys (RFC 7517), such as jwks = \"accounts.jwks.json\""),
    ("keys.json", "absent.json",
        "credentials.toml:4: cannot read absent.json: No such file or directory (os error 2)"),
    ("keys.json", "long.json",
        "credentials.toml:4: long.json is longer than 262144 bytes: keep current keys only"),
    ("keys.json", "cut.json",
        "cut.json:2: not JSON: write a JWK Set, {\"keys\": [...]}"),
    ("keys.json", "secret.json",
        "secret.json: key \"shared\": is symmetric, so whoever verifies could sign: use an issuer with public keys\n\
         secret.json: key \"private\": is a private key: write its public half only, and replace it, as it was shown here\n\
         secret.json: key \"rsa\": fits none of the issuer's algorithms: pin its algorithm, or remove the key\n\
         secret.json: key \"short\": has not the size of its type (RSA: 2048 to 8192 bits)\n\
         secret.json: key \"named\": fits none of the issuer's algorithms: pin its algorithm, or remove the key\n\
         secret.json: key \"twice\": its kid is that of a key above: give each its own\n\
         secret.json: key \"odd\": is of no known type, or its numbers are not base64url\n\
         secret.json: several keys, and not all have a kid: tokens say by it which one is meant"),
    ("[[issuer]]", "[[issuer]]\nleeway = \"6m\"",
        "credentials.toml:2: issuer \"accounts\": leeway: \"6m\" is out of range: use \"0s\" to \"5m\""),
    ("[[issuer]]", "[[issuer]]\njwks_uri = \"https://accounts.test/keys\"",
        "credentials.toml:2: issuer \"accounts\": unknown key \"jwks_uri\": known here are algorithms, audience, iss, jwks, leeway, name, principal_claim, tenant_claim, tenants"),
    ("tenant_claim = \"tenant\"\n", "tenant_claim = \"tenant\"\n[[issuer]]\nname = \"again\"\niss = \"https://accounts.test\"\njwks = \"keys.json\"\nalgorithms = [\"ES256\", \"EdDSA\"]\naudience = [\"https://api.test\"]\ntenant_claim = \"sub\"\n",
        "credentials.toml:10: issuer \"again\": \"https://accounts.test\" is the iss of an issuer above: list each issuer once"),
];
