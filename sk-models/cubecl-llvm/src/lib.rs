#![doc = include_str!("../README.md")]

use cubecl_core::{ir::nvidia::SmArch, prelude::KernelDefinition};
use cubecl_environment::backtrace::BackTrace;
use cubecl_server::{compiler::CompilationError, kernel::BufferIOAttr};

use nvptx::ptx_version::PtxVersion;

/// Why nothing here works.
const ABSENT: &str = "this build has no LLVM backend; it compiles kernels with NVRTC (cubecl/cuda-cpp)";

/// What code is generated for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LlvmTarget {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU.
    Nvptx,
}

/// The settings of a compilation.
#[derive(Debug, Clone, Default)]
pub struct PlironOptions {
    /// Alignment of buffers on the processor.
    pub cpu_buffer_alignment: Option<u32>,
    /// The architecture of an AMD GPU.
    pub arch: Option<()>,
    /// The architecture of an NVIDIA GPU.
    pub sm_arch: Option<SmArch>,
    /// The version of PTX to write.
    pub ptx_version: Option<PtxVersion>,
    /// Whether launch parameters are constants of the grid.
    pub grid_constants: bool,
}

/// The compiler, which refuses every kernel.
#[derive(Debug, Clone, Default)]
pub struct PlironCompiler {
    /// What it would generate code for.
    pub target: LlvmTarget,
}

impl PlironCompiler {
    /// Compiles nothing.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn compile(&mut self, _: KernelDefinition, _: &PlironOptions) -> Result<PlironArtifact, CompilationError> {
        Err(CompilationError::Generic { reason: ABSENT.to_owned(), backtrace: BackTrace::capture() })
    }

    /// The language of what it would write.
    #[must_use]
    pub fn lang_tag(&self) -> &'static str {
        "ll"
    }
}

/// What a compilation would give.
#[derive(Clone)]
pub enum PlironArtifact {
    /// A module for an NVIDIA GPU.
    NvptxCode(NvptxModule),
    /// A module for anything else.
    Other,
}

/// A module for an NVIDIA GPU.
#[derive(Debug, Clone)]
pub struct NvptxModule {
    /// Its text, ended by a zero.
    pub ptx: Vec<core::ffi::c_char>,
    /// The name of its kernel.
    pub entrypoint: String,
    /// What it was made from.
    pub ir: String,
    /// Bytes of shared memory that a launch reserves.
    pub shared_memory_size: usize,
    /// Which buffers are read and which written.
    pub io: Vec<BufferIOAttr>,
}

/// NVIDIA's assembly.
pub mod nvptx {
    /// Its versions.
    pub mod ptx_version {
        /// A version of PTX. There is none, since none is written.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum PtxVersion {}

        impl PtxVersion {
            /// The newest version that a driver loads.
            #[must_use]
            pub fn for_driver(_: i32) -> Option<Self> {
                None
            }
        }

        impl core::fmt::Display for PtxVersion {
            fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {}
            }
        }
    }
}

/// What the backends have in common.
pub mod shared {
    /// Which features of a device the backend can use.
    pub mod lowered_features {
        /// A family of GPUs.
        pub enum GpuTarget {
            /// NVIDIA's.
            Nvptx,
        }

        /// Narrows the properties of a device to what the backend can use.
        ///
        /// # Panics
        ///
        /// Always: it is reached only where the LLVM backend was selected.
        pub fn restrict_features<T>(_: &mut T, _: GpuTarget) {
            panic!("{}", super::super::ABSENT);
        }
    }
}
