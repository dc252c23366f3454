//! The two nginx processes: the upstream of both proxies, and the proxy that is compared.
//!
//! Each is one process without a master, so its CPU is that of one pid. It ends with the thread
//! that started it. It must not touch nginx's own folders or its service.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result};
use onceway_lab::wait;

use super::stand::{NginxPorts, Tools};

/// The body of each answer.
const LENGTH: usize = 1024;

pub struct Nginx(Child);

impl Nginx {
    /// Answers everything with 1 KiB that compresses badly, as most bodies would, plain and over
    /// TLS.
    pub fn upstream(tools: &Tools, dir: &Path, [port, secure]: [u16; 2]) -> Result<Nginx> {
        let mut state = 7_u64;
        let letter = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + (state >> 40) as u8 % 26)
        };
        let body: String = (0..LENGTH).map(letter).collect();
        let server = format!(
            "server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{secure} ssl; access_log off; default_type application/json; \
             ssl_certificate ../certs/here.pem; ssl_certificate_key ../certs/here.key; \
             location / {{ return 200 \"{body}\"; }} }}"
        );
        Nginx::start(tools, &dir.join("nginx-upstream"), port, &server)
    }

    /// Passes everything on: without a log, with an access log, and without one to the upstream's
    /// TLS.
    pub fn proxy(tools: &Tools, dir: &Path, ports: NginxPorts) -> Result<Nginx> {
        let at = |port, log, to| {
            format!(
                "server {{ listen 127.0.0.1:{port}; access_log {log}; location / {{ proxy_pass {to}; \
                 proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}\n"
            )
        };
        let up = |name, port| {
            format!(
                "upstream {name} {{ server 127.0.0.1:{port}; keepalive 512; keepalive_requests 1000000000; }}\n"
            )
        };
        let verified = "proxy_ssl_verify on; proxy_ssl_trusted_certificate ../certs/ca.pem; proxy_ssl_name here.onceway; \
             proxy_ssl_server_name on;\n";
        let servers = [
            verified,
            &up("up", ports.direct),
            &up("secure", ports.secure_direct),
            &at(ports.quiet, "off", "http://up"),
            &at(ports.logged, "access.log", "http://up"),
            &at(ports.secure, "off", "https://secure"),
        ];
        Nginx::start(tools, &dir.join("nginx-proxy"), ports.logged, &servers.concat())
    }

    fn start(tools: &Tools, dir: &Path, port: u16, servers: &str) -> Result<Nginx> {
        fs::create_dir(dir)?;
        let said = Command::new(&tools.nginx).arg("-V").output().context("cannot run nginx")?;
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        let kinds = ["proxy", "fastcgi", "uwsgi", "scgi"];
        let kinds = kinds.iter().filter(|kind| !said.contains(&format!("--without-http_{kind}_module")));
        let folders: String = kinds.map(|kind| format!("{kind}_temp_path {kind};\n")).collect();
        let text = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log error.log;\n\
             worker_rlimit_nofile 16384;\nevents {{ worker_connections 8192; }}\n\
             http {{\nclient_body_temp_path body;\n{folders}keepalive_requests 1000000000;\n{servers}\n}}\n"
        );
        fs::write(dir.join("nginx.conf"), text)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&tools.nginx).arg("-p").arg(dir);
        let child = command.args(["-c", "nginx.conf", "-e", "error.log"]).current_dir(dir).spawn();
        let nginx = Nginx(child.context("cannot start nginx")?);
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait::blocking_until("nginx to listen", Duration::from_secs(10), listens)
            .with_context(|| fs::read_to_string(dir.join("error.log")).unwrap_or_default())?;
        Ok(nginx)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
