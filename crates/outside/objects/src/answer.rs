//! What a question can hold and what an answer looks like. Filled by
//! [`crate::Names`], read by whoever builds findings.

use sunder_access::{Address, CodeAddress, Span, ThreadId};

/// One function at a code address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeFrame {
    /// Demangled and shortened; `symbol+0x…` or `file+0x…` where there is no
    /// better, the bare address where nothing is mapped.
    pub function: String,
    /// Source file, as the debug information has it.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// Whether this function was inlined into the next frame.
    pub inlined: bool,
    /// The file that holds the code.
    pub module: Option<String>,
    /// The address, as asked for, less what the loader added to the file's own.
    pub offset: Option<u64>,
}

/// A source position of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Path as the debug information has it.
    pub file: String,
    /// Line, from 1.
    pub line: Option<u32>,
}

/// What the caller knows of the moment of an access. Everything is optional;
/// what is missing makes the answer poorer, never wrong.
#[derive(Clone, Debug, Default)]
pub struct ObjectContext {
    /// The heap block that held the address at the time of the access.
    pub heap: Option<HeapBlock>,
    /// The stacks of the threads.
    pub stacks: Vec<ThreadStack>,
    /// The thread pointers (`fs_base`), for thread-local variables.
    pub thread_pointers: Vec<ThreadPointer>,
    /// Frames that were live at some time, for stack variables. Frames that
    /// name different variables at one address name none.
    pub frames: Vec<StackFrame>,
    /// The threads that access the address, if known: frames that these were
    /// created in count more than others.
    pub touched_by: Vec<ThreadId>,
}

/// A frame of a call stack while it waited for a call to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// Whose stack it is on.
    pub thread: ThreadId,
    /// The thread that was created in it.
    pub created: ThreadId,
    /// Where its call returns to.
    pub return_address: CodeAddress,
    /// The stack pointer at the call.
    pub stack_pointer: Address,
    /// The frame pointer register.
    pub frame_pointer: Address,
    /// The canonical frame address: the stack pointer of the caller at its
    /// call. `None` for the outermost of the frames that are known.
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
    /// The bytes that the program asked for.
    pub span: Span,
    /// Return addresses of the allocation, innermost first.
    pub allocation: Vec<CodeAddress>,
    /// The thread that allocated it.
    pub thread: Option<ThreadId>,
    /// Whether it has been freed since.
    pub freed: bool,
}

/// Where a thread's stack lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStack {
    /// The thread.
    pub thread: ThreadId,
    /// Its stack.
    pub span: Span,
}

/// Where a thread's thread-local storage is anchored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPointer {
    /// The thread.
    pub thread: ThreadId,
    /// Its thread pointer (`fs_base` on x86-64).
    pub fs_base: Address,
}

/// Where an object lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Allocated with `malloc` or its kin.
    Heap,
    /// A global or static variable.
    Global,
    /// A thread-local variable.
    Tls,
    /// A thread's stack.
    Stack,
    /// An anonymous or file mapping.
    Mapping,
    /// Nothing is known.
    #[default]
    Unknown,
}

/// A type of one module's debug information; only for questions to the
/// [`crate::Names`] that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeHandle {
    pub(crate) module: u32,
    pub(crate) ty: u32,
}

/// An object and what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectName {
    /// Where it lives.
    pub kind: ObjectKind,
    /// The variable's name, qualified; for mappings the file's path or the
    /// kernel's name; for heap blocks the variable or field that holds them.
    pub name: Option<String>,
    /// Its type as the language writes it.
    pub type_name: Option<String>,
    /// Its type, to ask for fields.
    pub type_handle: Option<TypeHandle>,
    /// Its size in bytes, where known.
    pub size: Option<u64>,
    /// The size of an element: of a block, of the type that the allocation
    /// tells; of a variable that is an array, of its elements.
    pub element_size: Option<u64>,
    /// Its first byte.
    pub start: Address,
    /// Where it was declared, for variables.
    pub declared: Option<Declared>,
    /// For heap blocks the call stack of the allocation, innermost first; for
    /// stack variables their function, at the declaration.
    pub allocation: Vec<CodeFrame>,
    /// The thread that allocated it or whose stack or TLS it is.
    pub thread: Option<ThreadId>,
    /// Whether the block was freed.
    pub freed: bool,
    /// The file whose segment holds it, for globals and TLS.
    pub module: Option<String>,
}

impl ObjectName {
    /// Position of `address` in the object; `None` before its start.
    pub fn offset_of(&self, address: Address) -> Option<u64> {
        address.0.checked_sub(self.start.0)
    }

    /// The bytes that the object covers, where its size is known.
    pub fn span(&self) -> Option<Span> {
        Some(Span::new(self.start, self.size?))
    }
}

/// How an instruction reaches the object that it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// Through a pointer or reference.
    Pointer,
    /// A global or static variable, directly.
    Global,
    /// A local variable in the function's own frame.
    Frame,
}

/// What the debug information says about the memory operand of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedAccess {
    /// How the object is reached.
    pub storage: Storage,
    /// The pointer, global or local that leads to it.
    pub variable: Option<String>,
    /// The type of the object that the pointer points to, or of the variable.
    pub type_name: String,
    /// That type, to ask for fields.
    pub type_handle: TypeHandle,
    /// Whether the type is a record of the program's own, not a number or a
    /// part of a library: the better witness of what a heap block is.
    pub own_record: bool,
    /// The size of the type in bytes; 0 if it is not known.
    pub type_size: u64,
    /// The field at `offset_in_type`; `None` for the whole object or where the
    /// offset is not known.
    pub field: Option<String>,
    /// Position of the operand's first byte in the type; `None` where an index
    /// hides it.
    pub offset_in_type: Option<u64>,
    /// Whether the element is known too; otherwise `offset_in_type` is that of
    /// the same field in some element.
    pub exact: bool,
    /// Distance between elements of the array that the pointer walks over; the
    /// size of the type, or of the element where the type itself is an array.
    pub element_stride: u64,
}
