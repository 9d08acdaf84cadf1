//! Finds the libmpi that belongs to an `mpiexec`.

use std::path::{Path, PathBuf};

/// Names the shared library goes by: MPICH ABI, Open MPI, Debian's MPICH, unversioned.
const NAMES: [&str; 4] = ["libmpi.so.12", "libmpi.so.40", "libmpich.so.12", "libmpi.so"];

/// Environment variable that overrides the search.
const VARIABLE: &str = "GAMBESON_LIBMPI";

/// The library to load for jobs started by `launcher`.
///
/// # Errors
/// A sentence with the places that were searched and what to do.
pub(crate) fn libmpi(launcher: &Path) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        return match path.is_file() {
            true => Ok(path),
            false => Err(format!("{VARIABLE} names {}, which is not a file", path.display())),
        };
    }
    let folders = folders(launcher);
    let mut candidates = folders.iter().flat_map(|folder| NAMES.iter().map(move |name| folder.join(name)));
    candidates.find(|path| path.is_file()).ok_or_else(|| {
        let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let (launcher, folders) = (launcher.display(), folders.join(", "));
        format!("no MPI library was found for {launcher} in {folders}; name it in {VARIABLE}")
    })
}

/// Folders that may hold the library, nearest to the launcher first.
///
/// A launcher is often a link into the installation (`/usr/bin/mpiexec` on Debian), so both the
/// place where it was found and the place it leads to count.
fn folders(program: &Path) -> Vec<PathBuf> {
    let resolved = program.canonicalize().unwrap_or_else(|_| program.to_path_buf());
    let mut prefixes = Vec::new();
    for place in [program, &resolved] {
        if let Some(prefix) = place.parent().and_then(Path::parent) {
            prefixes.push(prefix.to_path_buf());
        }
    }
    prefixes.extend(std::env::var_os("I_MPI_ROOT").filter(|_| is_hydra(&resolved)).map(PathBuf::from));
    prefixes.dedup();

    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let open_mpi = resolved
        .file_name()
        .is_some_and(|name| ["orterun", "prterun", "mpiexec.openmpi"].iter().any(|own| name == *own));
    let inside = match open_mpi {
        true => vec![format!("lib/{triplet}/openmpi/lib"), "lib".into(), "lib64".into(), format!("lib/{triplet}")],
        false => vec![
            "lib".into(),
            "lib/release".into(),
            "lib64".into(),
            format!("lib/{triplet}"),
            format!("lib/{triplet}/mpich/lib"),
        ],
    };
    prefixes.iter().flat_map(|prefix| inside.iter().map(move |folder| prefix.join(folder))).collect()
}

fn is_hydra(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name.to_string_lossy().contains("hydra") || name == "mpiexec")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An installation with these files, in a folder of its own.
    fn installation(name: &str, files: &[&str]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("gambeson-locate-{}-{name}", std::process::id()));
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder can be made");
            std::fs::write(path, b"").expect("a file can be written");
        }
        root
    }

    fn check(name: &str, files: &[&str], expected: Option<&str>) {
        let root = installation(name, files);
        let found = libmpi(&root.join("bin/mpiexec"));
        assert_eq!(found.ok(), expected.map(|file| root.join(file)), "{name}");
        std::fs::remove_dir_all(root).expect("the folder can be removed");
    }

    #[test]
    fn the_library_beside_the_launcher_is_taken() {
        check("mpich", &["bin/mpiexec", "lib/libmpi.so.12"], Some("lib/libmpi.so.12"));
        check("openmpi", &["bin/mpiexec", "lib64/libmpi.so.40"], Some("lib64/libmpi.so.40"));
        check("intel", &["bin/mpiexec", "lib/release/libmpi.so.12"], Some("lib/release/libmpi.so.12"));
        check("none", &["bin/mpiexec"], None);
    }
}
