//! Debian's package archive: a suite's index, verified, and the kernel packages in it.
//!
//! Chain of trust: `InRelease` is verified with gpgv against Debian's keyring, its SHA256 verifies `Packages.xz`, whose
//! SHA256 verifies each package. Without gpgv or the keyring, a message reports that the first link was not verified.
//! No file name is ever pinned: the index is asked each time and kept for the day the network is away.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::Which;
use super::command;
use super::version::DebVersion;

/// Debian's own front of its mirrors.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";
/// Paths of Debian's keyring; `.pgp` is its name since Debian 13.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];
/// A mirror that does not answer in this time is away.
const CONNECT_TIMEOUT_S: &str = "8";
/// A kernel is 40 MB; slower than 130 kB/s is away too.
const DOWNLOAD_TIMEOUT_S: &str = "300";

/// One stanza of a package index.
#[derive(Debug, Clone)]
pub struct Package {
    pub name: String,
    pub version: DebVersion,
    pub depends: String,
    pub filename: String,
    pub sha256: String,
}

/// The packages that together hold one kernel: its image, and its modules if they come apart.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The kernel's release as `uname -r` says it, `6.12.95+deb12-cloud-amd64`.
    pub release: String,
    pub version: DebVersion,
    pub packages: Vec<Package>,
}

/// A file that no mirror gave; a cached kernel may replace it.
#[derive(Debug)]
pub struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "download {}", self.0)
    }
}

impl std::error::Error for Unreachable {}

/// The archive as this machine's apt reaches it.
pub struct Archive {
    mirrors: Vec<String>,
    proxy: Option<String>,
    cache: PathBuf,
}

impl Archive {
    /// Reads apt's configuration; indexes are kept below `cache`.
    pub fn from_apt(cache: &Path) -> Self {
        let mut mirrors: Vec<_> = apt_mirror().into_iter().collect();
        if !mirrors.iter().any(|mirror| mirror == DEFAULT_MIRROR) {
            mirrors.push(DEFAULT_MIRROR.to_string());
        }
        Archive {
            mirrors,
            proxy: apt_proxy(),
            cache: cache.join("index"),
        }
    }

    /// The kernel packages of `suite`'s main component, from a verified index.
    pub fn index(&self, suite: &str) -> Result<Vec<Package>> {
        let dir = self.cache.join(suite);
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let release = self.release(suite, &dir)?;
        let wanted = sha256_in_release(&release, "main/binary-amd64/Packages.xz")
            .with_context(|| format!("InRelease of {suite} lists no Packages.xz"))?;
        let packages = dir.join("Packages.xz");
        if sha256(&packages).ok().as_deref() != Some(wanted) {
            self.fetch(
                &format!("dists/{suite}/main/binary-amd64/Packages.xz"),
                &packages,
            )?;
            verify_sha256(&packages, wanted)?;
        }
        let text = command::output(Command::new("xz").arg("-dc").arg(&packages))?;
        Ok(parse_index(&text))
    }

    /// Downloads a package and verifies it against the index.
    pub fn download(&self, package: &Package, to: &Path) -> Result<()> {
        self.fetch(&package.filename, to)?;
        verify_sha256(to, &package.sha256)
    }

    /// The signed text of the suite's `InRelease`.
    fn release(&self, suite: &str, dir: &Path) -> Result<String> {
        let signed = dir.join("InRelease");
        self.fetch(&format!("dists/{suite}/InRelease"), &signed)?;
        let keyring = KEYRINGS.iter().map(Path::new).find(|path| path.exists());
        match keyring.filter(|_| command::find("gpgv").is_some()) {
            Some(keyring) => verify_signature(&signed, keyring, &dir.join("Release")),
            None => {
                println!(
                    "{suite}: the index's signature is NOT verified; \
                     install gpgv and debian-archive-keyring"
                );
                fs::read_to_string(&signed).with_context(|| format!("read {}", signed.display()))
            }
        }
    }

    /// Fetches a path of the archive from the first mirror that has it; what was at `to` stays until then.
    fn fetch(&self, path: &str, to: &Path) -> Result<()> {
        let partial = command::with_suffix(to, ".partial");
        let mut failure = None;
        for mirror in &self.mirrors {
            let url = format!("{mirror}/{path}");
            match command::run(self.curl(&url, &partial)) {
                Ok(()) => {
                    return fs::rename(&partial, to)
                        .with_context(|| format!("rename {}", partial.display()));
                }
                Err(error) => failure = Some(error.context(Unreachable(url))),
            }
        }
        Err(failure.expect("the default mirror is always in the list"))
    }

    fn curl(&self, url: &str, to: &Path) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--location"]);
        curl.args([
            "--connect-timeout",
            CONNECT_TIMEOUT_S,
            "--max-time",
            DOWNLOAD_TIMEOUT_S,
        ]);
        if let Some(proxy) = &self.proxy {
            curl.args(["--proxy", proxy]);
        }
        curl.arg("--output").arg(to).arg(url);
        curl
    }
}

/// Picks the newest kernel `which` stands for; versions with a part missing from the index are passed over.
pub fn choose(index: &[Package], which: Which) -> Option<Selection> {
    let mut releases: Vec<_> = index
        .iter()
        .filter(|package| which.accepts(&package.version))
        .filter_map(|package| Some((&package.version, cloud_release(&package.name)?)))
        .collect();
    releases.sort();
    releases.dedup();
    releases
        .iter()
        .rev()
        .find_map(|(version, release)| assemble(index, version, release))
}

/// `6.12.95+deb12-cloud-amd64` of the name of a package that may hold that kernel's image.
fn cloud_release(name: &str) -> Option<&str> {
    let prefixes = ["linux-binary-unsigned-", "linux-binary-", "linux-image-"];
    let rest = prefixes
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))?;
    let release = rest.strip_suffix("-unsigned").unwrap_or(rest);
    let numbered = release.starts_with(|c: char| c.is_ascii_digit());
    (numbered && release.ends_with("-cloud-amd64")).then_some(release)
}

/// Since 7.0 the image is a `linux-binary` package next to `linux-modules`, and `linux-image` only names both; before, it holds all.
fn assemble(index: &[Package], version: &DebVersion, release: &str) -> Option<Selection> {
    let find = |name: String| {
        index
            .iter()
            .find(|package| package.name == name && package.version == *version)
    };
    let binary = find(format!("linux-binary-{release}"))
        .or_else(|| find(format!("linux-binary-unsigned-{release}")))
        .zip(find(format!("linux-modules-{release}")));
    let packages = match binary {
        Some((binary, modules)) => {
            let base = find(format!("linux-base-{release}")); // modules.builtin
            [Some(binary), Some(modules), base]
                .into_iter()
                .flatten()
                .cloned()
                .collect()
        }
        None => {
            let image = find(format!("linux-image-{release}"))
                .or_else(|| find(format!("linux-image-{release}-unsigned")))
                .filter(|image| !image.depends.contains("linux-modules-"))?;
            vec![image.clone()]
        }
    };
    Some(Selection {
        release: release.to_string(),
        version: version.clone(),
        packages,
    })
}

/// Reads the kernel packages of an index; stanzas that lack a field are passed over.
fn parse_index(text: &str) -> Vec<Package> {
    text.split("\n\n")
        .filter(|stanza| stanza.trim_start().starts_with("Package: linux-"))
        .filter_map(parse_stanza)
        .collect()
}

fn parse_stanza(stanza: &str) -> Option<Package> {
    let fields = fields(stanza);
    let field = |name| fields.get(name).copied();
    Some(Package {
        name: field("Package")?.to_string(),
        version: DebVersion::new(field("Version")?),
        depends: field("Depends").unwrap_or_default().to_string(),
        filename: field("Filename")?.to_string(),
        sha256: field("SHA256")?.to_string(),
    })
}

/// The single-line fields of a stanza; continuation lines are passed over.
fn fields(stanza: &str) -> BTreeMap<&str, &str> {
    let lines = stanza
        .lines()
        .filter(|line| !line.starts_with([' ', '\t', '#']));
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect()
}

fn sha256_in_release<'a>(release: &'a str, path: &str) -> Option<&'a str> {
    let section = release
        .lines()
        .skip_while(|line| *line != "SHA256:")
        .skip(1);
    section
        .take_while(|line| line.starts_with(' '))
        .find_map(|line| {
            let mut words = line.split_whitespace();
            let (hash, _size, name) = (words.next()?, words.next()?, words.next()?);
            (name == path).then_some(hash)
        })
}

/// Verifies `signed` and returns only the text that the signature covers.
///
/// gpgv fails when any of several signatures is by a key it does not have; one good and none bad is enough, as for apt.
fn verify_signature(signed: &Path, keyring: &Path, text: &Path) -> Result<String> {
    let _ = fs::remove_file(text);
    let mut gpgv = Command::new("gpgv");
    gpgv.arg("--keyring")
        .arg(keyring)
        .args(["--status-fd", "1", "--output"])
        .arg(text)
        .arg(signed);
    let output = gpgv.output().context("run gpgv")?;
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    let has = |word: &str| {
        status
            .lines()
            .any(|line| line.starts_with(&format!("[GNUPG:] {word} ")))
    };
    ensure!(
        has("GOODSIG") && has("VALIDSIG") && !has("BADSIG"),
        "verify {} against {}: {}",
        signed.display(),
        keyring.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    fs::read_to_string(text).with_context(|| format!("read {}", text.display()))
}

fn verify_sha256(path: &Path, wanted: &str) -> Result<()> {
    let found = sha256(path)?;
    if found != wanted {
        let _ = fs::remove_file(path);
        bail!(
            "verify {}: SHA256 is {found}, the index has {wanted}; the mirror may be in the middle of an update, try again",
            path.display()
        );
    }
    Ok(())
}

fn sha256(path: &Path) -> Result<String> {
    ensure!(path.exists(), "{} does not exist", path.display());
    let line = command::output(Command::new("sha256sum").arg(path))?;
    Ok(line
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_string())
}

/// The mirror that this machine's apt uses, or Debian's own front of them.
pub fn mirror() -> String {
    apt_mirror().unwrap_or_else(|| DEFAULT_MIRROR.to_string())
}

/// The first Debian archive over HTTP in apt's sources.
fn apt_mirror() -> Option<String> {
    let listed = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut files: Vec<_> = listed
        .chain([PathBuf::from("/etc/apt/sources.list")])
        .collect();
    files.sort();
    files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .find_map(|text| debian_mirror(&text))
}

/// A Debian mirror's address ends in `/debian`, in either format of sources.
fn debian_mirror(sources: &str) -> Option<String> {
    let words = sources
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(str::split_whitespace);
    let urls = words.filter(|word| word.starts_with("http://") || word.starts_with("https://"));
    urls.map(|url| url.trim_end_matches('/'))
        .find(|url| url.ends_with("/debian"))
        .map(str::to_string)
}

/// apt's proxy, unless the environment already has one for curl.
fn apt_proxy() -> Option<String> {
    if ["http_proxy", "https_proxy", "all_proxy"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
    {
        return None;
    }
    let config = command::output(Command::new("apt-config").args([
        "dump",
        "--format",
        "%v%n",
        "Acquire::http::Proxy",
    ]));
    config
        .ok()
        .map(|text| text.trim().to_string())
        .filter(|proxy| !proxy.is_empty() && proxy != "DIRECT")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stanza(name: &str, version: &str, depends: &str) -> String {
        format!(
            "Package: {name}\nVersion: {version}\nDepends: {depends}\nDescription: kernel\n more: text\n\
             Filename: pool/{name}_{version}_amd64.deb\nSHA256: 00ff\n"
        )
    }

    fn index(rows: &[(&str, &str)]) -> Vec<Package> {
        let text: Vec<_> = rows
            .iter()
            .map(|(name, version)| {
                let split = name.starts_with("linux-image-7");
                stanza(
                    name,
                    version,
                    if split {
                        "linux-modules-x, linux-binary-x"
                    } else {
                        "kmod"
                    },
                )
            })
            .collect();
        parse_index(&text.join("\n"))
    }

    fn names(selection: &Selection) -> Vec<&str> {
        selection
            .packages
            .iter()
            .map(|package| package.name.as_str())
            .collect()
    }

    #[test]
    fn packages_with_another_checksum_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("linux-image.deb");
        fs::write(&path, "abc").unwrap();
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        verify_sha256(&path, right).unwrap();
        fs::write(&path, "abd").unwrap();
        let text = verify_sha256(&path, right).unwrap_err().to_string();
        assert!(text.contains(right), "{text}");
        assert!(!path.exists());
    }

    #[test]
    fn floor_is_the_newest_signed_6_12_image() {
        let index = index(&[
            (
                "linux-image-6.12.95+deb12-cloud-amd64-unsigned",
                "6.12.95-1~bpo12+1",
            ),
            (
                "linux-image-6.12.95+deb12-cloud-amd64-dbg",
                "6.12.95-1~bpo12+1",
            ),
            ("linux-image-6.12.9+deb12-cloud-amd64", "6.12.9-1~bpo12+1"),
            ("linux-image-6.12.95+deb12-cloud-amd64", "6.12.95-1~bpo12+1"),
            ("linux-image-6.12.96+deb12-amd64", "6.12.96-1~bpo12+1"),
            ("linux-image-6.13.1+deb12-cloud-amd64", "6.13.1-1~bpo12+1"),
            ("linux-image-cloud-amd64", "6.12.95-1~bpo12+1"),
        ]);
        let chosen = choose(&index, Which::Floor).unwrap();
        assert_eq!(names(&chosen), ["linux-image-6.12.95+deb12-cloud-amd64"]);
        assert_eq!(chosen.release, "6.12.95+deb12-cloud-amd64");
    }

    #[test]
    fn floor_takes_an_unsigned_image_without_signed_ones() {
        let index = index(&[(
            "linux-image-6.12.97+deb12-cloud-amd64-unsigned",
            "6.12.97-1~bpo12+1",
        )]);
        assert_eq!(
            choose(&index, Which::Floor).unwrap().release,
            "6.12.97+deb12-cloud-amd64"
        );
    }

    #[test]
    fn newest_is_highest_version_even_if_only_unsigned() {
        let index = index(&[
            ("linux-image-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1"),
            ("linux-binary-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1"),
            ("linux-modules-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1"),
            ("linux-modules-7.3.4+deb13-cloud-amd64", "7.3.4-1~bpo13+1"),
            (
                "linux-binary-unsigned-7.3.4+deb13-cloud-amd64",
                "7.3.4-1~bpo13+1",
            ),
            ("linux-base-7.3.4+deb13-cloud-amd64", "7.3.4-1~bpo13+1"),
            ("linux-image-6.19.14+deb13-cloud-amd64", "6.19.14-1~bpo13+1"),
        ]);
        let expected = [
            "linux-binary-unsigned-7.3.4+deb13-cloud-amd64",
            "linux-modules-7.3.4+deb13-cloud-amd64",
            "linux-base-7.3.4+deb13-cloud-amd64",
        ];
        assert_eq!(names(&choose(&index, Which::Newest).unwrap()), expected);
    }

    #[test]
    fn newest_prefers_the_signed_binary_of_a_version() {
        let index = index(&[
            (
                "linux-binary-unsigned-7.2.12+deb13-cloud-amd64",
                "7.2.12-1~bpo13+1",
            ),
            ("linux-binary-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1"),
            ("linux-modules-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1"),
        ]);
        assert_eq!(
            names(&choose(&index, Which::Newest).unwrap())[0],
            "linux-binary-7.2.12+deb13-cloud-amd64"
        );
    }

    #[test]
    fn version_with_a_part_missing_is_passed_over() {
        let index = index(&[
            ("linux-binary-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1"),
            ("linux-modules-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1"),
            (
                "linux-binary-unsigned-7.3.4+deb13-cloud-amd64",
                "7.3.4-1~bpo13+1",
            ),
            ("linux-modules-7.3.4+deb13-cloud-amd64", "7.3.3-1~bpo13+1"),
            ("linux-image-7.3.4+deb13-cloud-amd64", "7.3.4-1~bpo13+1"),
        ]);
        assert_eq!(
            choose(&index, Which::Newest).unwrap().version.as_str(),
            "7.2.12-1~bpo13+1"
        );
    }

    #[test]
    fn release_hash_is_of_the_exact_path() {
        let release = "Suite: x\nMD5Sum:\n 11 5 main/Packages.xz\nSHA256:\n 22 5 contrib/main/Packages.xz\n 33 5 main/Packages.xz\nOther: 1\n 44 5 main/Release\n";
        assert_eq!(sha256_in_release(release, "main/Packages.xz"), Some("33"));
        assert_eq!(sha256_in_release(release, "main/Release"), None);
    }

    #[test]
    fn mirror_is_read_from_both_formats_of_sources() {
        let deb822 = "Types: deb\n# http://snapshot.debian.org/archive/debian\nURIs: https://ftp.example.org/debian/\nSuites: trixie\n";
        assert_eq!(
            debian_mirror(deb822).as_deref(),
            Some("https://ftp.example.org/debian")
        );
        let one_line = "deb https://x.example/apt stable main\ndeb [arch=amd64] http://m.example/debian trixie main\n";
        assert_eq!(
            debian_mirror(one_line).as_deref(),
            Some("http://m.example/debian")
        );
        assert_eq!(
            debian_mirror("deb http://deb.debian.org/debian-security trixie main"),
            None
        );
    }
}
