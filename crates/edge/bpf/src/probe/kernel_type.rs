//! The kernel's structures from its type information (BTF), including modules.

use std::ffi::{CStr, CString};
use std::io;
use std::ptr::{self, NonNull};

use libbpf_sys::{BTF_KIND_STRUCT, btf, btf_member, btf_type};

/// A structure of the running kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelStruct {
    /// Its size.
    pub bytes: u32,
    /// Names of its members, in order; those without a name are omitted.
    pub members: Vec<String>,
}

impl KernelStruct {
    /// True if it has a member of this name.
    pub fn has(&self, member: &str) -> bool {
        self.members.iter().any(|name| name == member)
    }
}

/// The structure `name` of the kernel, or of `module` if it is a loaded module. `None` if there is
/// none.
///
/// # Errors
/// The kernel has no type information, or it cannot be read.
pub fn kernel_struct(name: &str, module: &str) -> io::Result<Option<KernelStruct>> {
    // SAFETY: takes nothing.
    let kernel = Types::new(unsafe { libbpf_sys::btf__load_vmlinux_btf() })?;
    if let Some(found) = kernel.find(name)? {
        return Ok(Some(found));
    }
    let module = CString::new(module)?;
    // SAFETY: a string that ends in zero, and types that outlive those which are built on them.
    let types = unsafe { libbpf_sys::btf__load_module_btf(module.as_ptr(), kernel.0.as_ptr()) };
    match Types::new(types) {
        Ok(types) => types.find(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Type information read by libbpf.
struct Types(NonNull<btf>);

impl Types {
    fn new(types: *mut btf) -> io::Result<Types> {
        // libbpf sets errno.
        NonNull::new(types)
            .map(Types)
            .ok_or_else(io::Error::last_os_error)
    }

    fn find(&self, name: &str) -> io::Result<Option<KernelStruct>> {
        let name = CString::new(name)?;
        let types = self.0.as_ptr();
        // SAFETY: types that were read, a string that ends in zero.
        let id =
            unsafe { libbpf_sys::btf__find_by_name_kind(types, name.as_ptr(), BTF_KIND_STRUCT) };
        let Ok(id) = u32::try_from(id) else {
            return Ok(None);
        };
        // SAFETY: types that were read; for an unknown id it returns null.
        let found: *const btf_type = unsafe { libbpf_sys::btf__type_by_id(types, id) };
        if found.is_null() {
            return Ok(None);
        }
        Ok(Some(self.read(found)))
    }

    /// `found`: a structure of these types. Its members follow it (BTF, "BTF_KIND_STRUCT").
    fn read(&self, found: *const btf_type) -> KernelStruct {
        const MEMBERS: u32 = 0xffff;
        // SAFETY: points to a type that lives while `self`.
        let head = unsafe { ptr::read(found) };
        // SAFETY: one behind the type, which is followed by its members.
        let first = unsafe { found.add(1) }.cast::<btf_member>();
        let count = (head.info & MEMBERS) as usize;
        // SAFETY: `count` members follow, checked by libbpf when it read them.
        let members = unsafe { std::slice::from_raw_parts(first, count) };
        // SAFETY: of a structure, this is its size.
        let bytes = unsafe { head.__bindgen_anon_1.size };
        let members = members.iter().filter_map(|m| self.name(m.name_off));
        KernelStruct {
            bytes,
            members: members.collect(),
        }
    }

    fn name(&self, offset: u32) -> Option<String> {
        // SAFETY: types that were read; for an unknown offset it returns null.
        let name = unsafe { libbpf_sys::btf__name_by_offset(self.0.as_ptr(), offset) };
        if name.is_null() {
            return None;
        }
        // SAFETY: a string of these types, which ends in zero.
        let name = unsafe { CStr::from_ptr(name) };
        let name = name.to_string_lossy().into_owned();
        Some(name).filter(|name| !name.is_empty())
    }
}

impl Drop for Types {
    fn drop(&mut self) {
        // SAFETY: read by libbpf, and nothing refers to them any more.
        unsafe { libbpf_sys::btf__free(self.0.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_structures_are_found_or_absent() {
        if super::super::kernel_btf().is_err() {
            let name = "kernel_structures_are_found_or_absent";
            fairpath_units::skip_test(name, "feature:kernel_btf", "needs type information");
            return;
        }
        let sock = kernel_struct("tcp_sock", "no_such_module")
            .unwrap()
            .unwrap();
        assert!(sock.has("snd_cwnd") && sock.has("delivered"), "{sock:?}");
        assert!(!sock.has("fairpath") && sock.bytes > 1000);
        assert_eq!(
            kernel_struct("no_such_structure", "no_such_module").unwrap(),
            None
        );
    }
}
