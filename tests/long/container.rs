//! The container's entry point, run from a bare folder with the static binary and mounted files
//! only; not as root, and without a writable place. Cargo builds the image's target here, which
//! needs musl-gcc, and root for chroot.

use crate::support::documents::text;
use crate::support::*;
use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;

const USER: &str = "65532:65532";

/// The shipped stage of the container file: the place of its binary, and its entry point.
struct Image {
    binary: String,
    entry: String,
}

fn image() -> Image {
    let file = text("deploy/Containerfile");
    let (_, last) = file.split_once("\nFROM scratch\n").expect("the last stage is empty at first");
    let after = |word: &str| {
        let mut found = last.lines().filter_map(|line| line.strip_prefix(word));
        let line = found.next().unwrap_or_else(|| panic!("no {word}")).to_owned();
        assert_eq!(found.next(), None, "one {word}");
        line
    };
    assert_eq!(after("USER "), USER);
    let copied = after("COPY ");
    let binary = copied.split_whitespace().next_back().unwrap().to_owned();
    let entry: Vec<String> = serde_json::from_str(&after("ENTRYPOINT ")).unwrap();
    let [entry] = entry.as_slice() else { panic!("{entry:?}") };
    Image { binary, entry: entry.clone() }
}

/// The tools that are missing here to build for the image and to enter its folder.
fn missing(target: &str) -> Option<String> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    if !sysroot.join("lib/rustlib").join(target).is_dir() {
        Some(format!("the target is missing: rustup target add {target}"))
    } else if installed("musl-gcc").is_none() {
        Some("musl-gcc is missing: install musl-tools".to_owned())
    } else if installed("chroot").is_none() {
        Some("chroot is missing: install coreutils".to_owned())
    } else if !rustix::process::geteuid().is_root() {
        Some("chroot needs root".to_owned())
    } else {
        None
    }
}

fn build(target: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    // Without debug information: this build is only run.
    cargo.args(["build", "--locked", "-p", "onceway", "--features", "jemalloc"]);
    cargo.args(["--config", "profile.dev.debug=false", "--target", target]);
    cargo.arg("--message-format=json-render-diagnostics").current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.env(format!("CC_{}", target.replace('-', "_")), "musl-gcc");
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let messages = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let built = messages.filter_map(|one| one["executable"].as_str().map(PathBuf::from)).next_back();
    built.expect("an executable")
}

fn mount(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).unwrap();
        if path.is_dir() {
            mount(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o444)).unwrap();
        }
    }
}

/// The arguments of `chroot` that run the image's entry point in its folder, as its user.
fn inside(bare: &Path, image: &Image, words: &[&str]) -> Vec<OsString> {
    let mut all =
        vec![OsString::from(format!("--userspec={USER}")), bare.into(), OsString::from(&image.entry)];
    all.extend(words.iter().map(OsString::from));
    all
}

#[test]
fn the_entry_point_runs_with_the_images_files_alone() {
    let (image, target) = (image(), format!("{}-unknown-linux-musl", env::consts::ARCH));
    if let Some(why) = missing(&target) {
        not_checked(&format!("the container's entry point ({why})"));
        return;
    }
    let _beside = run(beside());
    let built = build(&target);
    run(async {
        let solo = Solo::start(&routes(), None).await;
        solo.region.act(Action::Stop, Part::Gateway).await.unwrap();
        let bare = solo.dir.join("bare");
        let binary = bare.join(image.binary.trim_start_matches('/'));
        fs::create_dir_all(binary.parent().unwrap()).unwrap();
        fs::copy(&built, &binary).unwrap();
        let etc = bare.join("etc/onceway");
        mount(&solo.dir.join("certificates"), &etc.join("certificates"));
        for (name, to) in
            [("solo", "region"), ("ring", "ring"), ("routes", "routes"), ("credentials", "credentials")]
        {
            fs::copy(solo.dir.join(format!("{name}.toml")), etc.join(format!("{to}.toml"))).unwrap();
            fs::set_permissions(etc.join(format!("{to}.toml")), fs::Permissions::from_mode(0o444)).unwrap();
        }

        let words = ["check", "--strict", "/etc/onceway/region.toml"];
        let mut check = Command::new("chroot");
        check.args(inside(&bare, &image, &words)).env_clear().env("PATH", env::var_os("PATH").unwrap());
        let checked = check.output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

        let words = ["serve", "--config", "/etc/onceway/region.toml"];
        let bare_one = launch("chroot".into(), inside(&bare, &image, &words), &solo.dir, "bare.log");
        let gateway = Process::spawn(&bare_one).unwrap();
        solo.serves().await;
        let charge = key("bare");
        let first = ask(post(&solo.public(), "/v1/charges", &charge, BODY)).await;
        let again = ask(post(&solo.public(), "/v1/charges", &charge, BODY)).await;
        assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 201), "{}", gateway.log_tail());
        assert_eq!(effects(&solo.ledger, &charge), 1);
        let healthy = ask(Ask::get(format!("{}/healthz", solo.region.admin()))).await;
        assert_eq!(healthy.status, 200);
        // The folder has only the given files: the program needs no place to write to.
        let mut there: Vec<_> =
            fs::read_dir(&bare).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        there.sort();
        assert_eq!(there, ["etc", "usr"]);
        let ended = gateway.stop(Signal::TERM, PATIENCE).await.unwrap();
        assert!(ended.contains("exit status: 0"), "{ended}: {}", gateway.log_tail());
    });
}
