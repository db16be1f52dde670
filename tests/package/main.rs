//! The Debian package as a file: what is in it, and that it comes out the same every time.
//!
//! A test of its effect on a system is in the guest: tests/vm/scenarios/package.sh.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fairpath_tests::binary;
use fairpath_units::skip_test;

const VERSION: &str = "9.8~test-1";

/// True if this machine has a program; if not, `test` is skipped.
fn has(test: &str, program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !found {
        let reason = format!("{program} is not installed; make setup installs it");
        skip_test(test, &format!("command:{program}"), &reason);
    }
    found
}

/// Packs the binary under test into `out`, with this umask and time zone.
fn pack(out: &Path, umask: &str, time_zone: &str) -> PathBuf {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
    match env::var_os("FAIRPATH_BIN_DIR") {
        Some(directory) => command.arg(Path::new(&directory).join("xtask")),
        None => command
            .arg(env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()))
            .args(["run", "--quiet", "--locked", "--package", "xtask", "--"]),
    };
    command
        .args(["deb", "--quick", "--version", VERSION, "--binary"])
        .arg(binary::fairpath())
        .arg("--output")
        .arg(out)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .env("TZ", time_zone);
    output(&mut command);
    let found = fs::read_dir(out).unwrap().map(|e| e.unwrap().path());
    let found: Vec<PathBuf> = found.collect();
    assert_eq!(found.len(), 1, "one package and nothing else: {found:?}");
    found[0].clone()
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A package and the directory that it goes with.
struct Packed {
    _dir: tempfile::TempDir,
    package: PathBuf,
}

/// The package that several tests check, and one compares. Packing takes seconds, so those that run at the same time
/// share one; it goes with the last of them.
fn packed() -> Arc<Packed> {
    static SHARED: Mutex<Weak<Packed>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let dir = tempfile::tempdir().unwrap();
        let package = pack(dir.path(), "022", "Pacific/Kiritimati");
        let packed = Arc::new(Packed { _dir: dir, package });
        *shared = Arc::downgrade(&packed);
        packed
    })
}

#[test]
fn two_packages_of_same_tree_are_same_bytes() {
    if !has("two_packages_of_same_tree_are_same_bytes", "dpkg-deb") {
        return;
    }
    let (first, second) = (packed(), tempfile::tempdir().unwrap());
    let second = pack(second.path(), "077", "America/Anchorage");
    assert!(
        fs::read(&first.package).unwrap() == fs::read(&second).unwrap(),
        "{} and {} differ",
        first.package.display(),
        second.display()
    );
}

#[test]
fn the_package_is_complete_and_owned_by_root() {
    let name = "the_package_is_complete_and_owned_by_root";
    if !has(name, "dpkg-deb") {
        return;
    }
    let packed = packed();
    let package = &packed.package;
    let listing = output(Command::new("dpkg-deb").arg("--contents").arg(package));
    for path in [
        "-rwxr-xr-x root/root ./usr/bin/fairpath",
        "-rw-r--r-- root/root ./usr/lib/systemd/system/fairpath.service",
        "-rw-r--r-- root/root ./usr/lib/sysusers.d/fairpath.conf",
        "-rw-r--r-- root/root ./etc/fairpath/fairpath.toml",
        "-rw-r--r-- root/root ./usr/share/man/man1/fairpath.1.gz",
        "-rw-r--r-- root/root ./usr/share/man/man1/fairpath-rtt.1.gz",
        "-rw-r--r-- root/root ./usr/share/man/man1/fairpath-run.1.gz",
        "-rw-r--r-- root/root ./usr/share/bash-completion/completions/fairpath",
        "-rw-r--r-- root/root ./usr/share/zsh/vendor-completions/_fairpath",
        "-rw-r--r-- root/root ./usr/share/fish/vendor_completions.d/fairpath.fish",
        "-rw-r--r-- root/root ./usr/share/doc/fairpath/copyright",
        "-rw-r--r-- root/root ./usr/share/doc/fairpath/guide/install.md",
        "-rw-r--r-- root/root ./usr/share/doc/fairpath/export.md",
        "-rw-r--r-- root/root ./usr/share/doc/fairpath/examples/prometheus/scrape.yml",
        "-rw-r--r-- root/root ./usr/share/doc/fairpath/examples/grafana/fairpath.json",
    ] {
        // MODE OWNER SIZE DATE TIME PATH
        let found = listing.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            [words[0], words[1], words[5]].join(" ") == path
        });
        assert!(found, "{path} in\n{listing}");
    }
    assert!(listing.lines().all(|line| line.contains(" root/root ")));
    let field = |name: &str| {
        let mut dpkg = Command::new("dpkg-deb");
        output(dpkg.arg("--field").arg(package).arg(name))
    };
    assert_eq!(field("Version").trim(), VERSION);
    for needed in ["libc6 (>= ", "libelf1", "zlib1g", "systemd"] {
        assert!(field("Depends").contains(needed), "{}", field("Depends"));
    }
    let conffiles = Command::new("dpkg-deb")
        .arg("--info")
        .arg(package)
        .arg("conffiles")
        .output();
    assert_eq!(conffiles.unwrap().stdout, b"/etc/fairpath/fairpath.toml\n");
}

#[test]
fn lintian_finds_no_error() {
    if !has("lintian_finds_no_error", "lintian") {
        return;
    }
    let packed = packed();
    let package = &packed.package;
    let mut lintian = Command::new("lintian");
    // Ends with an error where it finds one; warnings are named in docs/guide/install.md.
    output(
        lintian
            .args(["--allow-root", "--fail-on", "error"])
            .arg(package),
    );
}

/// The files of the package, below `dir`.
fn extracted(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    let packed = packed();
    let mut dpkg = Command::new("dpkg-deb");
    output(dpkg.arg("--extract").arg(&packed.package).arg(&tree));
    tree
}

/// The installed Markdown files below `dir`.
fn pages(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => pages(&path),
        false => vec![path],
    });
    found
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

/// The targets of the links of a page that lead to files.
fn links(text: &str) -> Vec<String> {
    let mut in_block = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !in_block && !fence
    });
    let prose = lines.map(|line| line.split('`').step_by(2).collect::<String>());
    let mut targets = Vec::new();
    for line in prose {
        let links = line.split("](").skip(1);
        let ends = links.filter_map(|link| Some(link.split_once(')')?.0));
        let files = ends.map(|target| target.split('#').next().unwrap_or_default());
        targets.extend(
            files
                .filter(|f| !f.is_empty() && !f.contains(':'))
                .map(str::to_owned),
        );
    }
    targets
}

#[test]
fn links_of_installed_documents_resolve() {
    if !has("links_of_installed_documents_resolve", "dpkg-deb") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let doc = extracted(dir.path()).join("usr/share/doc/fairpath");
    let (mut checked, mut broken) = (0, Vec::new());
    for page in pages(&doc) {
        for link in links(&fs::read_to_string(&page).unwrap()) {
            checked += 1;
            if !page.parent().unwrap().join(&link).exists() {
                broken.push(format!(
                    "{}: {link}",
                    page.strip_prefix(&doc).unwrap().display()
                ));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(checked > 200, "{checked}");
}

#[test]
fn promtool_accepts_the_installed_configuration() {
    let name = "promtool_accepts_the_installed_configuration";
    if !has(name, "promtool") || !has(name, "dpkg-deb") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let tree = extracted(dir.path());
    let examples = tree.join("usr/share/doc/fairpath/examples/prometheus");
    let promtool = |words: &[&str]| {
        let mut promtool = Command::new("promtool");
        output(promtool.args(words).current_dir(&examples))
    };
    // Absolute paths in it are those of an installed system.
    let scrape = fs::read_to_string(examples.join("scrape.yml")).unwrap();
    let here = scrape.replace("/usr/share", &tree.join("usr/share").display().to_string());
    assert_ne!(here, scrape);
    fs::write(examples.join("here.yml"), here).unwrap();
    let checked = promtool(&["check", "config", "here.yml"]);
    assert!(checked.contains("rules found"), "{checked}");
    promtool(&["check", "rules", "fairpath.rules.yml"]);
    promtool(&["test", "rules", "fairpath.test.yml"]);
}

#[test]
fn manual_pages_and_completions_are_well_formed() {
    let name = "manual_pages_and_completions_are_well_formed";
    if !has(name, "man") || !has(name, "dpkg-deb") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let tree = extracted(dir.path());
    for page in fs::read_dir(tree.join("usr/share/man/man1")).unwrap() {
        let page = page.unwrap().path();
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l"])
            .arg(&page);
        let output = man
            .env("LC_ALL", "C.UTF-8")
            .env("MANWIDTH", "100")
            .output()
            .unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{page:?}: {output:?}"
        );
    }
    let bash = tree.join("usr/share/bash-completion/completions/fairpath");
    let complete = "source \"$1\"; COMP_WORDS=(fairpath rtt --rate); COMP_CWORD=2; \
                    _fairpath fairpath --rate rtt; echo \"${COMPREPLY[*]}\"";
    let answer = output(
        Command::new("bash")
            .args(["-c", complete, "bash"])
            .arg(bash),
    );
    assert_eq!(answer.trim(), "--rate-limit");
}
