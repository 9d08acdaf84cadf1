//! Where shared memory is listened for: folders and names that are refused, and how it is said.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gambeson_link::carrier::shm::Folder;

const PATIENCE: Duration = Duration::from_millis(50);

/// A folder that goes when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("gambeson-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a scratch folder");
        Scratch(path)
    }

    fn folder(&self) -> Folder {
        Folder::at(self.0.join("sockets")).expect("a folder of our own")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn refused(path: &Path) -> String {
    let error = Folder::at(path).expect_err("it must be refused").to_string();
    let prefix = format!("{} cannot hold the sockets of shared memory: ", path.display());
    error.strip_prefix(&prefix).unwrap_or_else(|| panic!("{error}")).to_owned()
}

#[test]
fn a_folder_that_others_can_use_is_refused() {
    let scratch = Scratch::new("open");
    for mode in [0o755, 0o701, 0o1777] {
        std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(mode)).expect("ours");
        let mode = mode & 0o777;
        let why = format!("others than its owner may use it (mode {mode:o}); chmod 700 keeps them out");
        assert_eq!(refused(&scratch.0), why);
    }
}

#[test]
fn what_is_no_folder_is_refused() {
    let scratch = Scratch::new("kinds");
    let (file, link) = (scratch.0.join("file"), scratch.0.join("link"));
    std::fs::write(&file, "").expect("ours");
    std::os::unix::fs::symlink(std::env::temp_dir(), &link).expect("ours");
    assert_eq!(refused(&file), "it is no folder; remove it or choose another");
    assert_eq!(refused(&link), "it is no folder; remove it or choose another");
    assert_eq!(refused(&scratch.0.join("a/b")), "No such file or directory (os error 2)");
}

#[test]
fn names_that_cannot_be_are_refused() {
    let scratch = Scratch::new("names");
    let folder = scratch.folder();
    for name in ["", "../elsewhere", "a/b", ".hidden", "nul\0"] {
        let error = folder.listen(name).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
        assert!(
            error.to_string().ends_with("a name must be that of a file in the folder, and must not begin with a dot")
        );
    }
    let long = "n".repeat(120);
    let length = scratch.0.join("sockets").join(&long).as_os_str().len();
    for error in [folder.listen(&long).expect_err("long"), folder.connect(&long, PATIENCE).expect_err("long")] {
        let why = format!("a socket's path may have 107 bytes and this one has {length}; choose a shorter one");
        assert!(error.to_string().ends_with(&why), "{error}");
    }
}

#[test]
fn nobody_there_is_said() {
    let scratch = Scratch::new("nobody");
    let folder = scratch.folder();
    let connecting =
        |why: &str| format!("cannot connect to home in {}/sockets over shared memory: {why}", scratch.0.display());
    assert_eq!(folder.connect("home", PATIENCE).expect_err("nobody").to_string(), connecting("nobody has that name"));

    // What a process leaves that was killed: a socket that nobody listens on.
    drop(std::os::unix::net::UnixListener::bind(scratch.0.join("sockets/home")).expect("ours"));
    let error = folder.connect("home", PATIENCE).expect_err("it has ended").to_string();
    assert_eq!(error, connecting("the process of that name has ended"));
    let _listener = folder.listen("home").expect("it is replaced");
    assert!(folder.connect("home", PATIENCE).is_ok(), "somebody listens now");
}

#[test]
fn whoever_listens_removes_what_the_dead_have_left_and_nothing_else() {
    let scratch = Scratch::new("dead");
    let folder = scratch.folder();
    let place = scratch.0.join("sockets");
    let living = folder.listen("living").expect("a name");
    drop(std::os::unix::net::UnixListener::bind(place.join("dead")).expect("ours"));
    std::fs::write(place.join("file"), "not a socket").expect("ours");
    let _listener = folder.listen("new").expect("a name");
    let mut names: Vec<_> =
        std::fs::read_dir(&place).expect("ours").map(|entry| entry.expect("ours").file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "living", "new"]);
    assert!(living.accept().expect("accept").is_none(), "it noticed nothing");
}

#[test]
fn a_name_is_taken_while_somebody_listens_and_free_again_afterwards() {
    let scratch = Scratch::new("taken");
    let folder = scratch.folder();
    let path = scratch.0.join("sockets/home");
    let listener = folder.listen("home").expect("a name");
    let error = folder.listen("home").expect_err("it is taken").to_string();
    let place = scratch.0.join("sockets");
    let why =
        format!("cannot listen for shared memory under home in {}: somebody listens there already", place.display());
    assert_eq!(error, why);
    assert!(folder.connect("home", PATIENCE).is_ok(), "it still listens");
    drop(listener);
    assert!(!path.exists(), "a listener takes its socket along");
    assert!(folder.listen("home").is_ok(), "it is free again");
}

#[test]
fn a_listener_that_accepts_nobody_is_given_up() {
    let scratch = Scratch::new("busy");
    let folder = scratch.folder();
    let _listener = folder.listen("home").expect("a name");
    let mut waiting = Vec::new();
    let error = loop {
        match folder.connect("home", PATIENCE) {
            Ok(carrier) => waiting.push(carrier),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().ends_with("it has not accepted anybody within 50ms"), "{error}");
    assert!(waiting.len() > 100, "only {} were let to wait", waiting.len());
}
