"""The work of the active checks on a GPU, as PTX: each driver since CUDA 9 compiles it for the GPU that it finds.

PTX 6.0 for sm_50 is the oldest that today's drivers accept and that every GPU from Maxwell on can run.
"""

import ctypes

U32, U64 = ctypes.c_uint32, ctypes.c_uint64

THREADS = 256
"""In a block. One thread processes one element; surplus threads of the last block do nothing."""

NOTHING_WRONG = 0xFFFFFFFF
"""`pattern_verify` leaves this as the first wrong word when there is none."""

PARAMETERS: dict[str, tuple[type[ctypes.c_uint32] | type[ctypes.c_uint64], ...]] = {
    "vector_add": (U64, U64, U64, U32),  # a, b, sum: float32[n]; n
    "pattern_write": (U64, U32, U32, U32),  # words: uint32[n]; n, seed, flip
    "pattern_verify": (U64, U32, U32, U32, U64),  # the same; found: uint32[2], wrong words and the first of them
}
"""The parameters of each kernel, in order."""


def pattern(index: int, seed: int, flip: int) -> int:
    """The word that `pattern_write` puts at an index: neighbours differ in many bits, and so do aliased addresses."""
    return ((index * 0x9E3779B1 + seed) & 0xFFFFFFFF) ^ flip


_INDEX = """
    mov.u32         %r1, %ctaid.x;
    mov.u32         %r2, %ntid.x;
    mov.u32         %r3, %tid.x;
    mad.lo.u32      %r4, %r1, %r2, %r3;
    setp.ge.u32     %p1, %r4, %r5;
    @%p1 bra        DONE;
"""
"""%r4: the index of this thread's element; %r5: the number of elements."""

_PATTERN = """
    ld.param.u64    %rd1, [words];
    ld.param.u32    %r6, [seed];
    ld.param.u32    %r7, [flip];
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32    %rd3, %r4, 4;
    add.u64         %rd4, %rd2, %rd3;
    mad.lo.u32      %r8, %r4, 0x9E3779B1, %r6;
    xor.b32         %r9, %r8, %r7;
"""
"""%rd4: the address of this thread's word; %r9: the word that belongs there."""

PTX = f""".version 6.0
.target sm_50
.address_size 64

.visible .entry vector_add(
    .param .u64 a,
    .param .u64 b,
    .param .u64 sum,
    .param .u32 n
)
{{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<11>;
    ld.param.u32    %r5, [n];
{_INDEX}
    ld.param.u64    %rd1, [a];
    ld.param.u64    %rd2, [b];
    ld.param.u64    %rd3, [sum];
    cvta.to.global.u64 %rd4, %rd1;
    cvta.to.global.u64 %rd5, %rd2;
    cvta.to.global.u64 %rd6, %rd3;
    mul.wide.u32    %rd7, %r4, 4;
    add.u64         %rd8, %rd4, %rd7;
    add.u64         %rd9, %rd5, %rd7;
    add.u64         %rd10, %rd6, %rd7;
    ld.global.f32   %f1, [%rd8];
    ld.global.f32   %f2, [%rd9];
    add.rn.f32      %f3, %f1, %f2;
    st.global.f32   [%rd10], %f3;
DONE:
    ret;
}}

.visible .entry pattern_write(
    .param .u64 words,
    .param .u32 n,
    .param .u32 seed,
    .param .u32 flip
)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<5>;
    ld.param.u32    %r5, [n];
{_INDEX}{_PATTERN}
    st.global.u32   [%rd4], %r9;
DONE:
    ret;
}}

.visible .entry pattern_verify(
    .param .u64 words,
    .param .u32 n,
    .param .u32 seed,
    .param .u32 flip,
    .param .u64 found
)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<13>;
    .reg .b64 %rd<7>;
    ld.param.u32    %r5, [n];
{_INDEX}{_PATTERN}
    ld.global.u32   %r10, [%rd4];
    setp.eq.u32     %p2, %r10, %r9;
    @%p2 bra        DONE;
    ld.param.u64    %rd5, [found];
    cvta.to.global.u64 %rd6, %rd5;
    atom.global.add.u32 %r11, [%rd6], 1;
    atom.global.min.u32 %r12, [%rd6+4], %r4;
DONE:
    ret;
}}
"""
