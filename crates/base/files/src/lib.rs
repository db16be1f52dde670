//! The files that a long-running process writes: state, rows, alerts and operation logs.
//!
//! ```text
//! path --> every directory on the way is trusted --> O_EXCL or an existing file, O_NOFOLLOW --> 0640
//! ```
//!
//! A directory is trusted if no user but root and this user can replace entries in it. Names of files
//! are then safe between the check and the use. A new file has mode 0640, that of [`replace_private`] 0600.
//! A person may place the output of one command anywhere ([`output`]): elsewhere, it follows no link and
//! takes no file of another user.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Component, Path, PathBuf};

/// The mode of every new file: its group can read it, other users cannot.
pub const MODE: u32 = 0o640;
/// The mode of a file that only its user can read.
const PRIVATE_MODE: u32 = 0o600;
/// The mode of a new directory for files.
pub const DIRECTORY_MODE: u32 = 0o750;
/// Maximum number of symbolic links in a path, as in the kernel.
const MAX_LINKS: u32 = 40;

/// A place where another user could replace a file.
#[derive(Debug, thiserror::Error)]
pub enum UnsafePlace {
    /// Other users can rename or create entries here.
    #[error(
        "the directory {path:?} (owner {owner}, group {group}, mode {mode:04o}) can be written by \
         other users: select another directory, or run `chmod o-w,g-w` on it"
    )]
    Writable {
        /// The directory.
        path: PathBuf,
        /// Its user id.
        owner: u32,
        /// Its group id.
        group: u32,
        /// Its permissions.
        mode: u32,
    },
    /// Its owner can rename or create entries here, or change the link.
    #[error(
        "{path:?} belongs to user {owner}: select another directory, or run `chown` to user {user}"
    )]
    OtherOwner {
        /// The directory or symbolic link.
        path: PathBuf,
        /// Its user id.
        owner: u32,
        /// The user id of this process.
        user: u32,
    },
    /// Other users can change the file.
    #[error(
        "the file {path:?} (owner {owner}, mode {mode:04o}) can be changed by other users: run `chmod o-w,g-w` on it"
    )]
    WritableFile {
        /// The file.
        path: PathBuf,
        /// Its user id.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// Another user created the file, or gave it a second name.
    #[error("the file {path:?} belongs to user {owner} and has {links} names: select another path")]
    PreparedFile {
        /// The file.
        path: PathBuf,
        /// Its user id.
        owner: u32,
        /// Its number of hard links.
        links: u64,
    },
    /// The path itself is a symbolic link.
    #[error("{path:?} is a symbolic link: name the file itself, or remove the link")]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// A directory, a FIFO, a socket or a device.
    #[error("{path:?} is not a regular file: name a regular file, or write to standard output")]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
}

impl From<UnsafePlace> for io::Error {
    fn from(error: UnsafePlace) -> io::Error {
        io::Error::new(ErrorKind::PermissionDenied, error)
    }
}

/// Creates a file that does not exist yet, for writing.
///
/// # Errors
/// A file or link exists, the place is unsafe ([`UnsafePlace`]), or the kernel refuses.
pub fn create(path: &Path) -> io::Result<File> {
    check_directory(directory_of(path))?;
    // O_EXCL follows no link.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path)
}

/// Opens a file for reading and appending, or creates it.
///
/// # Errors
/// The path is a symbolic link, the place is unsafe ([`UnsafePlace`]), or the kernel refuses.
pub fn append(path: &Path) -> io::Result<File> {
    check_directory(directory_of(path))?;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(MODE);
    open_no_link(&options, 0, path)
}

/// The existing content of a file, when a command opens it for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the output follows.
    Append,
    /// It is removed.
    Truncate,
}

/// Opens the file that a person named for the output of a command, or creates it.
///
/// Follows a symbolic link only in a directory that [`check_directory`] accepts: there, `/dev/stdout` works.
/// In other directories (`/tmp`, the home of the user behind sudo) another user may have prepared the path.
///
/// # Errors
/// Another user prepared the path ([`UnsafePlace`]), or the kernel refuses.
pub fn output(path: &Path, existing: Existing) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).mode(MODE);
    match existing {
        Existing::Append => options.append(true),
        Existing::Truncate => options.write(true),
    };
    let directory = directory_of(path);
    let file = match check_directory(directory) {
        Ok(()) => options.open(path)?,
        Err(error) if is_prepared_link(&error) => return Err(error),
        Err(_) => {
            let file = open_no_link(&options, 0, path)?;
            check_file(path, &file.metadata()?, &fs::metadata(directory)?)?;
            file
        }
    };
    if existing == Existing::Truncate && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file for reading that no user but root and this user can change or replace.
///
/// # Errors
/// The path is no regular file, another user can change it ([`UnsafePlace`]), or the kernel refuses.
pub fn trusted(path: &Path) -> io::Result<File> {
    check_directory(directory_of(path))?;
    // A FIFO does not wait for its other end.
    let file = open_no_link(OpenOptions::new().read(true), libc::O_NONBLOCK, path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(UnsafePlace::NotRegular {
            path: path.to_owned(),
        }
        .into());
    }
    check_owner(path, &found, user())?;
    if found.mode() & (libc::S_IWGRP | libc::S_IWOTH) != 0 {
        return Err(UnsafePlace::WritableFile {
            path: path.to_owned(),
            owner: found.uid(),
            mode: found.mode() & 0o7777,
        }
        .into());
    }
    Ok(file)
}

/// Replaces the content of a file at once. A reader finds the old or the new content, also after a crash.
///
/// # Errors
/// The place is unsafe ([`UnsafePlace`]), or the kernel refuses. The old file is unchanged.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    check_directory(directory_of(path))?;
    put(path, content, MODE, |_| Ok(()))
}

/// The same for a file that only this user can read.
///
/// # Errors
/// As [`replace`].
pub fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    check_directory(directory_of(path))?;
    put(path, content, PRIVATE_MODE, |_| Ok(()))
}

/// Moves a new file with this content to `path`, after `prepare`.
fn put(
    path: &Path,
    content: &[u8],
    mode: u32,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let directory = directory_of(path);
    // No other program has this name, and an error removes the file. A crash may leave it.
    let mut new = tempfile::Builder::new()
        .prefix(".fairpath-")
        .suffix(".new")
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(directory)?;
    new.write_all(content)?;
    prepare(new.as_file())?;
    new.as_file().sync_all()?;
    new.persist(path)?;
    File::open(directory)?.sync_all()
}

/// A file that a person named to be changed. Others that change it in this way wait for the end.
#[derive(Debug)]
pub struct Locked {
    path: PathBuf,
    file: File,
}

impl Locked {
    /// Waits for the lock of a regular file. Symbolic links to it are followed.
    ///
    /// # Errors
    /// The file is not regular, the place is unsafe ([`UnsafePlace`]), or the kernel refuses.
    pub fn open(path: &Path) -> io::Result<Locked> {
        loop {
            let path = follow(path)?;
            let file = open_no_link(OpenOptions::new().read(true), 0, &path)?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            // The one that had the lock replaced the file.
            let (locked, found) = (file.metadata()?, fs::symlink_metadata(&path)?);
            if (locked.dev(), locked.ino()) == (found.dev(), found.ino()) {
                return Ok(Locked { path, file });
            }
        }
    }

    /// Replaces the content at once, as [`replace`]. Mode and owner stay. Then the lock ends.
    ///
    /// # Errors
    /// The kernel refuses. The old file is unchanged.
    pub fn replace(self, content: &[u8]) -> io::Result<()> {
        let old = self.file.metadata()?;
        put(&self.path, content, MODE, |new| {
            let found = new.metadata()?;
            if (found.uid(), found.gid()) != (old.uid(), old.gid()) {
                fchown(new, Some(old.uid()), Some(old.gid()))?;
            }
            new.set_permissions(old.permissions())
        })
    }
}

/// The regular file at the end of symbolic links, each in a trusted directory.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..=MAX_LINKS {
        let directory = directory_of(&at);
        check_directory(directory)?;
        let found = fs::symlink_metadata(&at)?;
        if found.is_file() {
            return Ok(at);
        }
        if !found.is_symlink() {
            return Err(UnsafePlace::NotRegular { path: at }.into());
        }
        check_owner(&at, &found, user())?;
        at = directory.join(fs::read_link(&at)?);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Creates a directory with its parents, if they are missing, and checks it.
///
/// # Errors
/// The place is unsafe ([`UnsafePlace`]), or the kernel refuses.
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    let absolute = std::path::absolute(path)?;
    if let Some(existing) = absolute.ancestors().find(|parent| parent.exists()) {
        let (at, found) = walk(existing)?;
        check_parent(&at, &found, user())?;
    }
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    check_directory(path)
}

/// Creates a directory if necessary, and moves the files that `write` creates into it.
///
/// They replace files and links of their names, and have the modes that `write` gave them.
///
/// # Errors
/// `write` fails, or the kernel refuses: in `/tmp`, it refuses to replace files of another user.
pub fn fill(directory: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let new = tempfile::tempdir_in(directory)?;
    write(new.path())?;
    for file in fs::read_dir(new.path())? {
        let file = file?;
        fs::rename(file.path(), directory.join(file.file_name()))?;
    }
    Ok(())
}

/// The directory that contains a file.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Checks that only root and this user can replace entries of `directory`, or the directory itself.
///
/// Walks the path as the kernel does, each link included. Parents with the sticky bit are accepted,
/// because only the owner of an entry can replace it there. So are parents that a group can write:
/// distributions give `/var/log` to a group.
///
/// # Errors
/// The place is unsafe ([`UnsafePlace`]), or a directory cannot be examined.
pub fn check_directory(directory: &Path) -> io::Result<()> {
    let (at, found) = walk(directory)?;
    check_last(&at, &found, user())
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The directory without links, after a check of every directory and link above it.
fn walk(directory: &Path) -> io::Result<(PathBuf, Metadata)> {
    let user = user();
    let absolute = std::path::absolute(directory)?;
    let mut rest: VecDeque<OsString> = parts(&absolute).collect();
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        check_parent(&at, &fs::symlink_metadata(&at)?, user)?;
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(part);
        let found = fs::symlink_metadata(&next)?;
        if !found.is_symlink() {
            at = next;
            continue;
        }
        check_owner(&next, &found, user)?;
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        rest = parts(&target).chain(rest).collect();
    }
    let found = fs::symlink_metadata(&at)?;
    Ok((at, found))
}

/// The names in a path, from the root or relative.
fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

fn check_owner(path: &Path, found: &Metadata, user: u32) -> io::Result<()> {
    if found.uid() == 0 || found.uid() == user {
        return Ok(());
    }
    Err(UnsafePlace::OtherOwner {
        path: path.to_owned(),
        owner: found.uid(),
        user,
    }
    .into())
}

/// Accepts a file of root, of this user, or of the owner of its directory, if it has one name.
fn check_file(path: &Path, found: &Metadata, directory: &Metadata) -> io::Result<()> {
    let owners = [0, user(), directory.uid()];
    if owners.contains(&found.uid()) && found.nlink() == 1 {
        return Ok(());
    }
    Err(UnsafePlace::PreparedFile {
        path: path.to_owned(),
        owner: found.uid(),
        links: found.nlink(),
    }
    .into())
}

/// True for a link of another user in a directory where every user can create one.
fn is_prepared_link(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let Some(UnsafePlace::OtherOwner { path, .. }) = cause else {
        return false;
    };
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let place = fs::metadata(directory_of(path));
    is_link && place.is_ok_and(|place| place.mode() & libc::S_IWOTH != 0)
}

fn check_parent(path: &Path, found: &Metadata, user: u32) -> io::Result<()> {
    check_owner(path, found, user)?;
    let is_sticky = found.mode() & libc::S_ISVTX != 0;
    let others = found.mode() & libc::S_IWOTH != 0;
    refuse_if(others && !is_sticky, path, found)
}

fn check_last(path: &Path, found: &Metadata, user: u32) -> io::Result<()> {
    check_owner(path, found, user)?;
    // Many systems give each user a group of the same name. A service's group has other members.
    let own_group = match user {
        0 => 0,
        _ => rustix::process::getegid().as_raw(),
    };
    let group = found.mode() & libc::S_IWGRP != 0 && found.gid() != own_group;
    refuse_if(group || found.mode() & libc::S_IWOTH != 0, path, found)
}

fn refuse_if(unsafe_place: bool, path: &Path, found: &Metadata) -> io::Result<()> {
    if !unsafe_place {
        return Ok(());
    }
    Err(UnsafePlace::Writable {
        path: path.to_owned(),
        owner: found.uid(),
        group: found.gid(),
        mode: found.mode() & 0o7777,
    }
    .into())
}

fn open_no_link(options: &OpenOptions, flags: i32, path: &Path) -> io::Result<File> {
    let mut options = options.clone();
    let opened = options.custom_flags(libc::O_NOFOLLOW | flags).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => UnsafePlace::Link {
            path: path.to_owned(),
        }
        .into(),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// Another user than root.
    const OTHER: u32 = 65_534;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn refusal<T: std::fmt::Debug>(result: io::Result<T>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        error.to_string()
    }

    /// Writes a file by every function.
    fn write_by_all(path: &Path) -> [io::Result<()>; 3] {
        [
            create(path).map(drop),
            append(path).map(drop),
            replace(path, b"new"),
        ]
    }

    #[test]
    fn links_lead_no_writer_to_another_file() {
        let place = tempfile::tempdir().unwrap();
        let secret = place.path().join("secret");
        fs::write(&secret, "precious").unwrap();
        for target in [&secret, &place.path().join("missing")] {
            let link = place.path().join("rows.json");
            symlink(target, &link).unwrap();
            assert_eq!(create(&link).unwrap_err().kind(), ErrorKind::AlreadyExists);
            assert!(refusal(append(&link)).contains("symbolic link"));
            replace(&link, b"new").unwrap();
            assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read(&link).unwrap(), b"new");
            assert_eq!(fs::read(&secret).unwrap(), b"precious");
            fs::remove_file(link).unwrap();
        }
        assert!(!place.path().join("missing").exists());
    }

    #[test]
    fn a_replaced_file_takes_no_name_of_others() {
        let place = tempfile::tempdir().unwrap();
        let (file, new) = (place.path().join("a"), place.path().join("a.new"));
        fs::write(&file, "old").unwrap();
        fs::write(&new, "precious").unwrap();
        replace(&file, b"1").unwrap();
        Locked::open(&file).unwrap().replace(b"2").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"2");
        assert_eq!(fs::read(&new).unwrap(), b"precious");
        // Nor does a failure leave a file.
        fs::create_dir(place.path().join("b")).unwrap();
        replace(&place.path().join("b"), b"1").unwrap_err();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_changed_file_keeps_mode_owner_and_links() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        fs::write(&file, "").unwrap();
        symlink("file", &link).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        for wanted in [0o600, 0o644, 0o444, 0o640] {
            set_mode(&file, wanted);
            if is_root {
                chown(&file, Some(OTHER), Some(OTHER - 1)).unwrap();
            }
            let content = wanted.to_string();
            Locked::open(&link)
                .unwrap()
                .replace(content.as_bytes())
                .unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
            assert_eq!(mode(&file), wanted);
            let found = fs::metadata(&file).unwrap();
            assert!(!is_root || (found.uid(), found.gid()) == (OTHER, OTHER - 1));
        }
        for name in ["fifo", "to-fifo"] {
            let path = place.path().join(name);
            if name == "fifo" {
                let status = std::process::Command::new("mkfifo").arg(&path).status();
                assert!(status.unwrap().success());
            } else {
                symlink("fifo", &path).unwrap();
            }
            let text = refusal(Locked::open(&path));
            assert!(text.contains("fifo\" is not a regular file"), "{text}");
        }
        refusal(Locked::open(place.path()));
        set_mode(place.path(), 0o777);
        assert!(refusal(Locked::open(&file)).contains("the directory"));
        set_mode(place.path(), 0o700);
    }

    #[test]
    fn changes_at_once_all_take_effect() {
        const CHANGES: usize = 16;
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..CHANGES {
                scope.spawn(|| {
                    let locked = Locked::open(&file).unwrap();
                    let text = fs::read_to_string(&file).unwrap() + "+";
                    locked.replace(text.as_bytes()).unwrap();
                });
            }
        });
        assert_eq!(fs::read_to_string(&file).unwrap(), "+".repeat(CHANGES));
    }

    #[test]
    fn files_that_others_can_change_are_not_trusted() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("mine.o");
        fs::write(&file, "object").unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&file, 0o644);
        trusted(&file).unwrap();
        for mode in [0o664, 0o646] {
            set(&file, mode);
            let text = refusal(trusted(&file));
            assert!(text.contains(&format!("mode {mode:04o}")), "{text}");
            assert!(text.ends_with("run `chmod o-w,g-w` on it"), "{text}");
        }
        set(&file, 0o644);
        let link = place.path().join("link.o");
        symlink(&file, &link).unwrap();
        assert!(refusal(trusted(&link)).contains("symbolic link"));
        set(place.path(), 0o777);
        assert!(refusal(trusted(&file)).contains("the directory"));
        set(place.path(), 0o700);
        assert_eq!(
            trusted(&place.path().join("none")).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }

    #[test]
    fn directories_that_others_can_write_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("rows");
        fs::create_dir(&dir).unwrap();
        let path = dir.join("rows.json");
        for bad in [0o777, 0o1777, 0o757, 0o702] {
            set_mode(&dir, bad);
            for result in write_by_all(&path) {
                let text = refusal(result);
                assert!(text.contains(&format!("mode {bad:04o}")), "{text}");
                assert!(text.contains("rows") && text.contains("chmod"), "{text}");
            }
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        }
        // Also through a link, and as a parent.
        set_mode(&dir, 0o777);
        symlink(&dir, place.path().join("link")).unwrap();
        refusal(append(&place.path().join("link/rows.json")));
        fs::create_dir(dir.join("below")).unwrap();
        refusal(append(&dir.join("below/rows.json")));
        refusal(append(&dir.join("below/../below/rows.json")));
        set_mode(&dir, 0o1777);
        append(&dir.join("below/rows.json")).unwrap();
        // As below /tmp: a new directory is this user's.
        create_directory(&dir.join("new/one"), DIRECTORY_MODE).unwrap();
        set_mode(&dir, 0o777);
        refusal(create_directory(&dir.join("newer/one"), DIRECTORY_MODE));
        assert!(!dir.join("newer").exists());
    }

    #[test]
    fn places_of_another_user_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let theirs = place.path().join("theirs");
        fs::create_dir_all(theirs.join("ours")).unwrap();
        chown(&theirs, Some(OTHER), None).unwrap();
        assert!(refusal(append(&theirs.join("rows"))).contains("belongs to user 65534"));
        refusal(append(&theirs.join("ours/rows")));
        // A link that its owner can change, in a directory like /tmp.
        let shared = place.path().join("shared");
        fs::create_dir(&shared).unwrap();
        set_mode(&shared, 0o1777);
        let link = shared.join("link");
        symlink(place.path(), &link).unwrap();
        append(&link.join("rows")).unwrap();
        std::os::unix::fs::lchown(&link, Some(OTHER), None).unwrap();
        assert!(refusal(append(&link.join("rows"))).contains("link"));
        // A group with other members.
        let group = place.path().join("group");
        fs::create_dir(&group).unwrap();
        chown(&group, None, Some(OTHER)).unwrap();
        set_mode(&group, 0o770);
        refusal(append(&group.join("rows")));
        set_mode(&group, 0o750);
        append(&group.join("rows")).unwrap();
    }

    #[test]
    fn new_files_have_one_mode() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("a/b");
        create_directory(&dir, DIRECTORY_MODE).unwrap();
        assert_eq!(mode(&dir) & !DIRECTORY_MODE, 0);
        for (name, write) in [
            ("create", (|path| create(path).map(drop)) as fn(&Path) -> _),
            ("append", |path| append(path).map(drop)),
            ("replace", |path| replace(path, b"")),
        ] {
            let path = dir.join(name);
            write(&path).unwrap();
            assert_eq!(mode(&path) & !MODE, 0, "{name}");
        }
        replace_private(&dir.join("replace"), b"").unwrap();
        assert_eq!(mode(&dir.join("replace")), PRIVATE_MODE);
        // An administrator's mode stays.
        set_mode(&dir.join("append"), 0o644);
        append(&dir.join("append")).unwrap();
        assert_eq!(mode(&dir.join("append")), 0o644);
    }

    #[test]
    fn output_takes_no_file_that_another_user_prepared() {
        let place = tempfile::tempdir().unwrap();
        let secret = place.path().join("secret");
        fs::write(&secret, "precious").unwrap();
        let shared = place.path().join("shared");
        fs::create_dir(&shared).unwrap();
        set_mode(&shared, 0o1777);
        let path = shared.join("out.json");
        for existing in [Existing::Append, Existing::Truncate] {
            symlink(&secret, &path).unwrap();
            assert!(refusal(output(&path, existing)).contains("symbolic link"));
            fs::remove_file(&path).unwrap();
            fs::hard_link(&secret, &path).unwrap();
            assert!(refusal(output(&path, existing)).contains("2 names"));
            fs::remove_file(&path).unwrap();
            if rustix::process::geteuid().is_root() {
                fs::write(&path, "").unwrap();
                chown(&path, Some(OTHER), None).unwrap();
                assert!(refusal(output(&path, existing)).contains("65534"));
                fs::remove_file(&path).unwrap();
            }
            assert_eq!(fs::read(&secret).unwrap(), b"precious");
        }
        if rustix::process::geteuid().is_root() {
            let link = shared.join("link");
            symlink(place.path(), &link).unwrap();
            output(&link.join("ours"), Existing::Append).unwrap();
            std::os::unix::fs::lchown(&link, Some(OTHER), None).unwrap();
            assert!(refusal(output(&link.join("secret"), Existing::Truncate)).contains("65534"));
            assert_eq!(fs::read(&secret).unwrap(), b"precious");
        }
        output(&path, Existing::Append)
            .unwrap()
            .write_all(b"ab")
            .unwrap();
        output(&path, Existing::Append)
            .unwrap()
            .write_all(b"c")
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        output(&path, Existing::Truncate)
            .unwrap()
            .write_all(b"d")
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"d");
        assert_eq!(mode(&path) & !MODE, 0);
        // In a safe directory, the link is this user's, too.
        let link = place.path().join("link");
        symlink(&path, &link).unwrap();
        output(&link, Existing::Append)
            .unwrap()
            .write_all(b"e")
            .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"de");
    }

    #[test]
    fn filling_a_directory_replaces_links() {
        let place = tempfile::tempdir().unwrap();
        let (secret, dir) = (place.path().join("secret"), place.path().join("new/pages"));
        fs::write(&secret, "precious").unwrap();
        for _ in 0..2 {
            fill(&dir, |new| fs::write(new.join("a.1"), "page")).unwrap();
            let names: Vec<_> = fs::read_dir(&dir).unwrap().collect();
            assert_eq!(names.len(), 1, "{names:?}");
            assert_eq!(fs::read(dir.join("a.1")).unwrap(), b"page");
            assert!(!fs::symlink_metadata(dir.join("a.1")).unwrap().is_symlink());
            fs::remove_file(dir.join("a.1")).unwrap();
            symlink(&secret, dir.join("a.1")).unwrap();
        }
        assert_eq!(fs::read(&secret).unwrap(), b"precious");
    }

    #[test]
    fn loops_of_links_end() {
        let place = tempfile::tempdir().unwrap();
        symlink("b", place.path().join("a")).unwrap();
        symlink("a", place.path().join("b")).unwrap();
        let error = append(&place.path().join("a/rows")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    }
}
