//! The inputs and results of queries. Filled by [`crate::Names`], read by the code that makes
//! findings.

use serde::{Deserialize, Serialize};
use sunder_access::{Address, CodeAddress, Span, ThreadId};

/// An array in a value of some type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayPart {
    /// Bytes before it.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
    /// Bytes of an element; fewer than `size`.
    pub element: u64,
}

/// One function at a code address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeFrame {
    /// Demangled and shortened; `symbol+0x…` or `file+0x…` if there is no name, the address alone
    /// if nothing is mapped there.
    pub function: String,
    /// Source file, as the debug information has it.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// Whether this function was inlined into the next frame.
    pub inlined: bool,
    /// The file that holds the code.
    pub module: Option<String>,
    /// The queried address minus the bias that the loader added to the file's addresses.
    pub offset: Option<u64>,
    /// In the call stack of an allocation: whether the function hands raw memory that it got from
    /// the call to its own caller, so that this caller decides what the memory is for.
    pub wrapper: bool,
}

impl CodeFrame {
    /// Tells one call from another: the file and the return address, since one line of source
    /// may have several calls; function and line where the return address is in no file.
    pub fn call_site(&self) -> String {
        match (&self.module, self.offset) {
            // Functions inlined into each other have one return address.
            (Some(module), Some(offset)) => format!("{module}+{offset:#x}:{}", self.function),
            _ => format!("{}:{:?}:{:?}", self.function, self.file, self.line),
        }
    }
}

/// The position of a declaration in the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Path as the debug information has it.
    pub file: String,
    /// Line, from 1.
    pub line: Option<u32>,
}

/// The caller's knowledge of the moment of an access. All fields are optional; a missing one makes
/// the result poorer, never wrong.
#[derive(Clone, Debug, Default)]
pub struct ObjectContext {
    /// The heap block that held the address at the time of the access.
    pub heap: Option<HeapBlock>,
    /// The stacks of the threads.
    pub stacks: Vec<ThreadStack>,
    /// The thread pointers (`fs_base`), for thread-local variables.
    pub thread_pointers: Vec<ThreadPointer>,
    /// Stack frames that were live at some time, for stack variables. If they name different
    /// variables at one address, it has no name.
    pub frames: Vec<StackFrame>,
    /// The threads that access the address, if known: frames in which these threads were created
    /// count more than others.
    pub touched_by: Vec<ThreadId>,
}

/// A stack frame of a function that waits for a call to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// The thread whose stack it is on.
    pub thread: ThreadId,
    /// The thread that was created in it.
    pub created: ThreadId,
    /// The return address of its call.
    pub return_address: CodeAddress,
    /// The stack pointer at the call.
    pub stack_pointer: Address,
    /// The frame pointer register.
    pub frame_pointer: Address,
    /// The canonical frame address: the caller's stack pointer at its call. `None` for the
    /// outermost known frame.
    pub cfa: Option<Address>,
}

impl StackFrame {
    /// Whether `address` lies in the frame.
    pub fn holds(&self, address: Address) -> bool {
        self.stack_pointer <= address && self.cfa.is_none_or(|end| address < end)
    }
}

/// A block of the heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapBlock {
    /// The bytes that the program requested.
    pub span: Span,
    /// Return addresses of the allocation, innermost first.
    pub allocation: Vec<CodeAddress>,
    /// The thread that allocated it.
    pub thread: Option<ThreadId>,
    /// Whether it has been freed since.
    pub freed: bool,
}

/// The location of a thread's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStack {
    /// The thread.
    pub thread: ThreadId,
    /// The addresses of its stack.
    pub span: Span,
}

/// The anchor of a thread's thread-local storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPointer {
    /// The thread.
    pub thread: ThreadId,
    /// Its thread pointer (`fs_base` on x86-64).
    pub fs_base: Address,
}

/// The storage of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Allocated by `malloc` or a function like it.
    Heap,
    /// A global or static variable.
    Global,
    /// A thread-local variable.
    Tls,
    /// A thread's stack.
    Stack,
    /// An anonymous or file mapping.
    Mapping,
    /// Unknown.
    #[default]
    Unknown,
}

/// A type of one module's debug information; valid only for the [`crate::Names`] that returned it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeHandle {
    pub(crate) module: u32,
    pub(crate) ty: u32,
}

/// The known facts of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectName {
    /// Its storage.
    pub kind: ObjectKind,
    /// The variable's name, qualified; for mappings the file's path or the
    /// kernel's name; for heap blocks the variable or field that holds them.
    pub name: Option<String>,
    /// Whether the holder of a heap block is a local variable.
    pub name_is_local: bool,
    /// Its type, in the syntax of its language.
    pub type_name: Option<String>,
    /// Its type, for queries of fields.
    pub type_handle: Option<TypeHandle>,
    /// Its size in bytes, where known.
    pub size: Option<u64>,
    /// The size of an element in bytes: for a block, of the type of its allocation; for a variable
    /// that is an array, of the array's element.
    pub element_size: Option<u64>,
    /// The address of its first byte.
    pub start: Address,
    /// The declaration, for variables.
    pub declared: Option<Declared>,
    /// For heap blocks the call stack of the allocation, innermost first; for stack variables their
    /// function, with the line of the declaration.
    pub allocation: Vec<CodeFrame>,
    /// The thread that allocated it or whose stack or TLS it is.
    pub thread: Option<ThreadId>,
    /// Whether the block has been freed.
    pub freed: bool,
    /// The file that defines it, for globals and TLS.
    pub module: Option<String>,
}

impl ObjectName {
    /// The offset of `address` in the object; `None` before its start.
    pub fn offset_of(&self, address: Address) -> Option<u64> {
        address.0.checked_sub(self.start.0)
    }

    /// The bytes of the object, if its size is known.
    pub fn span(&self) -> Option<Span> {
        Some(Span::new(self.start, self.size?))
    }
}

/// How an instruction reaches the object that it accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Storage {
    /// Through a pointer or reference.
    Pointer,
    /// A global or static variable, directly.
    Global,
    /// A local variable in the function's own frame.
    Frame,
}

/// The memory operand of an instruction, according to the debug information.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypedAccess {
    /// How the object is reached.
    pub storage: Storage,
    /// The pointer, global or local that leads to it.
    pub variable: Option<String>,
    /// The type of the object that the pointer points to, or of the variable.
    pub type_name: String,
    /// That type, for queries of fields.
    #[serde(skip)]
    pub type_handle: TypeHandle,
    /// Whether the type is a record of the program's own, not a number or a part of a library: such
    /// a type is better evidence of the type of a heap block.
    pub own_record: bool,
    /// Whether a larger block is no array of the type, because something derived may lie there.
    pub is_head: bool,
    /// The size of the type in bytes; 0 if unknown.
    pub type_size: u64,
    /// The field at `offset_in_type`; `None` for the object as a whole, or if the offset is not
    /// known.
    pub field: Option<String>,
    /// The offset of the operand's first byte in the type; `None` if it depends on an unknown
    /// index.
    pub offset_in_type: Option<u64>,
    /// Whether the element is known, too; if not, `offset_in_type` is that of the same field in
    /// some element.
    pub exact: bool,
    /// Distance in bytes between elements of the array that the pointer steps over: the size of the
    /// type, or of the element if the type itself is an array.
    pub element_stride: u64,
}

#[cfg(test)]
mod tests {
    use super::CodeFrame;

    #[test]
    fn two_calls_on_one_line_are_two_call_sites() {
        let call = |offset| CodeFrame {
            function: "main".to_owned(),
            file: Some("/src/a.c".to_owned()),
            line: Some(7),
            module: Some("/bin/a".to_owned()),
            offset,
            ..CodeFrame::default()
        };
        assert_ne!(call(Some(0x10)).call_site(), call(Some(0x20)).call_site());
        assert_eq!(call(Some(0x10)).call_site(), call(Some(0x10)).call_site());
        // Code that lies in no file has no better identity than its line.
        assert_eq!(call(None).call_site(), call(None).call_site());
    }
}
