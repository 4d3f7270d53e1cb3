//! A loader of DAQ modules: it opens the shared objects and calls them as libdaq 2 and libdaq 3 do.

#![allow(unsafe_code, reason = "calls of a shared object")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

use libloading::Library;
use millrace_daq::{v2, v3};
use parking_lot::Mutex;

/// Returns the shared object of an interface, which cargo builds with the tests.
pub(crate) fn shared_object(version: u32) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let name = format!("libdaq{version}_millrace.so");
    let folders = program.ancestors().skip(1).take(2);
    let found = folders
        .map(|folder| folder.join(&name))
        .find(|path| path.exists());
    found.unwrap_or_else(|| panic!("there is no {name} beside {}", program.display()))
}

/// Returns the module of a shared object, which stays loaded until the program ends.
fn module<M>(version: u32) -> &'static M {
    // SAFETY: the object's initialisers are those of a Rust library.
    let library = unsafe { Library::new(shared_object(version)) }.unwrap();
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: the object exports a module of this type under this name.
    let symbol = unsafe { library.get::<*const M>(b"DAQ_MODULE_DATA\0") }.unwrap();
    // SAFETY: the module lives as long as the object is loaded.
    unsafe { &**symbol }
}

fn c_string(text: &str) -> *mut c_char {
    CString::new(text).unwrap().into_raw()
}

/// The decision of a test on a packet: the verdict, and a frame to inject against the packet's direction.
#[derive(Default)]
pub(crate) struct Decision {
    pub(crate) verdict: c_int,
    pub(crate) inject: Option<Vec<u8>>,
}

/// A test's decision about a packet: it takes the index of the interface and the bytes, which it may change.
pub(crate) type Decide<'a> = dyn FnMut(i32, &mut [u8]) -> Decision + 'a;

/// An instance of the module for libdaq 2.
pub(crate) struct Daq2 {
    module: &'static v2::Module,
    handle: *mut c_void,
}

// SAFETY: a handle belongs to one thread at a time.
unsafe impl Send for Daq2 {}

impl Daq2 {
    /// Initialises the module; the error is its text.
    pub(crate) fn new(input: &Path, variables: &[(&str, &str)], timeout: u32) -> Result<Daq2, String> {
        let module: &v2::Module = module(2);
        assert_eq!(module.api_version, 0x0001_0002);
        // SAFETY: the module has a name.
        assert_eq!(unsafe { CStr::from_ptr(module.name) }, c"millrace");
        let mut values = null_mut();
        for (key, value) in variables {
            values = Box::into_raw(Box::new(v2::Dict {
                key: c_string(key),
                value: c_string(value),
                next: values,
            }));
        }
        let config = v2::Config {
            name: c_string(input.to_str().unwrap()),
            snaplen: 1514,
            timeout,
            mode: v2::MODE_INLINE,
            flags: 0,
            values,
            extra: null_mut(),
        };
        let (mut handle, mut errors) = (null_mut(), [0 as c_char; 256]);
        // SAFETY: all pointers are valid.
        let result =
            unsafe { (module.initialize)(&raw const config, &raw mut handle, errors.as_mut_ptr(), 256) };
        match result {
            0 => Ok(Daq2 { module, handle }),
            // SAFETY: the module ends its text with a zero.
            _ => Err(unsafe { CStr::from_ptr(errors.as_ptr()) }
                .to_string_lossy()
                .into_owned()),
        }
    }

    pub(crate) fn start(&self) -> Result<(), String> {
        // SAFETY: the handle is valid.
        match unsafe { (self.module.start)(self.handle) } {
            0 => Ok(()),
            _ => {
                // SAFETY: as above.
                let text = unsafe { (self.module.get_errbuf)(self.handle) };
                // SAFETY: the module returns a string.
                Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
            }
        }
    }

    /// Acquires packets until the time limit, or the limit of packets.
    pub(crate) fn acquire(&self, packets: c_int, decide: &mut Decide<'_>) -> c_int {
        struct User<'a, 'b> {
            daq: &'a Daq2,
            decide: &'a mut Decide<'b>,
        }
        unsafe extern "C" fn analyse(
            user: *mut c_void,
            header: *const v2::PacketHeader,
            data: *const u8,
        ) -> c_int {
            // SAFETY: `acquire` passes this value on.
            let user = unsafe { &mut *user.cast::<User<'_, '_>>() };
            // SAFETY: the module passes a header.
            let header = unsafe { *header };
            assert!(header.caplen <= header.pktlen);
            // SAFETY: the module passes as many bytes, which may be changed.
            let bytes = unsafe { std::slice::from_raw_parts_mut(data.cast_mut(), header.caplen as usize) };
            let decision = (user.decide)(header.ingress_index, bytes);
            if let Some(frame) = decision.inject {
                let daq = user.daq;
                // SAFETY: all pointers are valid.
                let result = unsafe {
                    (daq.module.inject)(
                        daq.handle,
                        &raw const header,
                        frame.as_ptr(),
                        frame.len() as u32,
                        1,
                    )
                };
                assert_eq!(result, 0);
            }
            decision.verdict
        }
        let mut user = User { daq: self, decide };
        // SAFETY: all pointers are valid during the call.
        unsafe {
            (self.module.acquire)(
                self.handle,
                packets,
                Some(analyse),
                null(),
                (&raw mut user).cast(),
            )
        }
    }

    pub(crate) fn stats(&self) -> v2::Stats {
        let mut stats = v2::Stats::default();
        // SAFETY: all pointers are valid.
        assert_eq!(unsafe { (self.module.get_stats)(self.handle, &raw mut stats) }, 0);
        stats
    }

    /// Ends a call of [`acquire`](Daq2::acquire), from any thread.
    pub(crate) fn breaker(&self) -> impl FnOnce() + Send + use<> {
        let (module, handle) = (self.module, self.handle.expose_provenance());
        move || {
            // SAFETY: the test keeps the module until then.
            let result = unsafe { (module.breakloop)(std::ptr::with_exposed_provenance_mut(handle)) };
            assert_eq!(result, 0);
        }
    }
}

impl Drop for Daq2 {
    fn drop(&mut self) {
        // SAFETY: the handle is valid.
        assert_eq!(unsafe { (self.module.stop)(self.handle) }, 0);
        // SAFETY: as above, and it is not used again.
        unsafe { (self.module.shutdown)(self.handle) };
    }
}

/// The configuration that the base functions of libdaq 3 read.
struct Config3 {
    input: CString,
    variables: Vec<(CString, CString)>,
    next: usize,
    instance: u32,
}

/// The last error text of a module.
static ERROR: Mutex<String> = Mutex::new(String::new());

mod base {
    use super::*;

    fn config<'a>(pointer: *mut c_void) -> &'a mut Config3 {
        // SAFETY: the loader passes its configuration to the module, which passes it back.
        unsafe { &mut *pointer.cast::<Config3>() }
    }
    pub(super) unsafe extern "C" fn input(pointer: *mut c_void) -> *const c_char {
        config(pointer).input.as_ptr()
    }
    pub(super) unsafe extern "C" fn snaplen(_: *mut c_void) -> c_int {
        1514
    }
    pub(super) unsafe extern "C" fn timeout(_: *mut c_void) -> c_uint {
        100
    }
    pub(super) unsafe extern "C" fn pool(_: *mut c_void) -> c_uint {
        64
    }
    pub(super) unsafe extern "C" fn total(pointer: *mut c_void) -> c_uint {
        if config(pointer).instance == 0 { 1 } else { 2 }
    }
    pub(super) unsafe extern "C" fn instance(pointer: *mut c_void) -> c_uint {
        config(pointer).instance
    }
    pub(super) unsafe extern "C" fn mode(_: *mut c_void) -> c_int {
        v3::MODE_INLINE
    }
    pub(super) unsafe extern "C" fn variable(_: *mut c_void, _: *const c_char) -> *const c_char {
        null()
    }
    pub(super) unsafe extern "C" fn first(
        pointer: *mut c_void,
        key: *mut *const c_char,
        value: *mut *const c_char,
    ) -> c_int {
        config(pointer).next = 0;
        // SAFETY: as this function.
        unsafe { next(pointer, key, value) }
    }
    pub(super) unsafe extern "C" fn next(
        pointer: *mut c_void,
        key: *mut *const c_char,
        value: *mut *const c_char,
    ) -> c_int {
        let config = config(pointer);
        let found = config.variables.get(config.next);
        config.next += 1;
        // SAFETY: the module passes two places.
        unsafe { *key = found.map_or(null(), |(key, _)| key.as_ptr()) };
        // SAFETY: as above.
        unsafe { *value = found.map_or(null(), |(_, value)| value.as_ptr()) };
        0
    }
    /// Takes the one argument that the format `%s` of the module needs.
    pub(super) unsafe extern "C" fn error(_: *mut c_void, format: *const c_char, text: *const c_char) {
        // SAFETY: the module passes two strings.
        assert_eq!(unsafe { CStr::from_ptr(format) }, c"%s");
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(text) };
        *ERROR.lock() = text.to_string_lossy().into_owned();
    }
}

/// An instance of the module for libdaq 3.
pub(crate) struct Daq3 {
    module: &'static v3::Module,
    handle: *mut c_void,
    _config: Box<Config3>,
}

// SAFETY: a handle belongs to one thread at a time.
unsafe impl Send for Daq3 {}

/// A message of the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message(*const v3::Message);

// SAFETY: a message belongs to one thread at a time, as its module does.
unsafe impl Send for Message {}

impl Message {
    /// Returns the index of the interface and the bytes of the packet.
    pub(crate) fn packet(&self) -> (i32, &'static mut [u8]) {
        // SAFETY: the message is not finalised, so it and the data that it points to are valid.
        let message = unsafe { &*self.0 };
        assert_eq!(
            (message.kind, message.hdr_len),
            (v3::PACKET, size_of::<v3::PacketHeader>())
        );
        // SAFETY: as above.
        let header = unsafe { &*message.hdr.cast::<v3::PacketHeader>() };
        assert!(message.data_len <= header.pktlen);
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts_mut(message.data, message.data_len as usize) };
        (header.ingress_index, bytes)
    }
}

impl Daq3 {
    /// Loads and instantiates the module; the error is its text. With several instances, `instance` counts
    /// from 1.
    pub(crate) fn new(input: &Path, variables: &[(&str, &str)], instance: u32) -> Result<Daq3, String> {
        let module: &v3::Module = module(3);
        assert_eq!(module.api_version, 0x0003_0001);
        assert_eq!(module.api_size as usize, size_of::<v3::Module>());
        // The error function is variadic. The module passes one argument.
        type Variadic = unsafe extern "C" fn(*mut c_void, *const c_char, ...);
        type One = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);
        // SAFETY: on this platform a function with fixed arguments receives those of a call of a variadic one.
        let set_errbuf = unsafe { std::mem::transmute::<One, Variadic>(base::error) };
        let api = Box::leak(Box::new(v3::BaseApi {
            api_version: 0x0003_0002,
            api_size: size_of::<v3::BaseApi>() as u32,
            config_get_input: base::input,
            config_get_snaplen: base::snaplen,
            config_get_timeout: base::timeout,
            config_get_msg_pool_size: base::pool,
            config_get_total_instances: base::total,
            config_get_instance_id: base::instance,
            config_get_mode: base::mode,
            config_get_variable: base::variable,
            config_first_variable: base::first,
            config_next_variable: base::next,
            resolve_subapi: null(),
            set_errbuf,
        }));
        // SAFETY: the functions live as long as the program.
        assert_eq!(unsafe { (module.load)(&raw const *api) }, 0);
        let text = |text: &str| CString::new(text).unwrap();
        let mut config = Box::new(Config3 {
            input: text(input.to_str().unwrap()),
            variables: variables
                .iter()
                .map(|(key, value)| (text(key), text(value)))
                .collect(),
            next: 0,
            instance,
        });
        let mut handle = null_mut();
        let pointer = (&raw mut *config).cast();
        // SAFETY: all pointers are valid.
        match unsafe { (module.instantiate)(pointer, null_mut(), &raw mut handle) } {
            0 => Ok(Daq3 {
                module,
                handle,
                _config: config,
            }),
            _ => Err(ERROR.lock().clone()),
        }
    }

    pub(crate) fn start(&self) -> Result<(), String> {
        // SAFETY: the handle is valid.
        match unsafe { (self.module.start)(self.handle) } {
            0 => Ok(()),
            _ => Err(ERROR.lock().clone()),
        }
    }

    /// Receives messages, up to a number, with the status.
    pub(crate) fn receive(&self, most: usize) -> (Vec<Message>, c_int) {
        let (mut messages, mut status) = (vec![null(); most], 0);
        // SAFETY: all pointers are valid, and there is room for the messages.
        let count = unsafe {
            (self.module.msg_receive)(self.handle, most as u32, messages.as_mut_ptr(), &raw mut status)
        };
        messages.truncate(count as usize);
        (messages.into_iter().map(Message).collect(), status)
    }

    pub(crate) fn finalize(&self, message: Message, verdict: c_int) -> c_int {
        // SAFETY: the handle is valid; the module checks the message.
        unsafe { (self.module.msg_finalize)(self.handle, message.0, verdict) }
    }

    /// Injects a frame relative to a message.
    pub(crate) fn inject(&self, message: Message, frame: &[u8], reverse: bool) -> c_int {
        // SAFETY: all pointers are valid.
        unsafe {
            (self.module.inject_relative)(
                self.handle,
                message.0,
                frame.as_ptr(),
                frame.len() as u32,
                c_int::from(reverse),
            )
        }
    }

    pub(crate) fn stats(&self) -> v3::Stats {
        let mut stats = v3::Stats::default();
        // SAFETY: all pointers are valid.
        assert_eq!(unsafe { (self.module.get_stats)(self.handle, &raw mut stats) }, 0);
        stats
    }

    /// Returns the size of the message pool, and the number of messages in it.
    pub(crate) fn pool(&self) -> (u32, u32) {
        let mut info = v3::PoolInfo::default();
        // SAFETY: all pointers are valid.
        let result = unsafe { (self.module.get_msg_pool_info)(self.handle, &raw mut info) };
        assert_eq!(result, 0);
        (info.size, info.available)
    }
}

impl Drop for Daq3 {
    fn drop(&mut self) {
        // SAFETY: the handle is valid.
        assert_eq!(unsafe { (self.module.stop)(self.handle) }, 0);
        // SAFETY: as above, and it is not used again.
        unsafe { (self.module.destroy)(self.handle) };
    }
}
