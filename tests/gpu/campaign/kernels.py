"""Kernels of known work, as PTX: what GPM says of them can be computed from their own operations and bytes.

PTX 7.0 for sm_80, which every driver since 450 translates for Ampere and newer. The one exception is Hopper's
asynchronous tensor instruction, which is of sm_90a alone: without it a tensor core of an H100 or H200 reaches
about 60 % of its rate.
"""

from typing import NamedTuple

THREADS = 256
WGMMA_THREADS = 128
"""Of a block: one warp group."""

CHAINS = 16
"""Independent results of a thread: enough to hide the latency of a multiply-add."""

PARAMETERS = ("from", "to", "threads", "rounds", "repeats")
"""Of each kernel: two buffers (u64), then u32: threads in all, turns of the inner loop, passes over the buffers."""

_HEAD = """
.visible .entry {name}(
    .param .u64 from,
    .param .u64 to,
    .param .u32 threads,
    .param .u32 rounds,
    .param .u32 repeats
)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<16>;
{registers}
    ld.param.u64    %rd1, [from];
    ld.param.u64    %rd2, [to];
    ld.param.u32    %r5, [threads];
    ld.param.u32    %r6, [rounds];
    ld.param.u32    %r7, [repeats];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mov.u32         %r1, %ctaid.x;
    mov.u32         %r2, %ntid.x;
    mov.u32         %r3, %tid.x;
    mad.lo.u32      %r4, %r1, %r2, %r3;
    setp.ge.u32     %p1, %r4, %r5;
    @%p1 bra        DONE;
"""
"""%r4: number of this thread; %rd3, %rd4: the buffers."""

_TAIL = """
DONE:
    ret;
}
"""


def _kernel(name: str, registers: str, body: str) -> str:
    return _HEAD.format(name=name, registers=registers) + body + _TAIL


def _store_sum(registers: list[str]) -> str:
    """The sum of all results into this thread's word: without a use the compiler would drop the work."""
    lines = [f"    add.rn.f32      {registers[0]}, {registers[0]}, {other};" for other in registers[1:]]
    address = ["    mul.wide.u32    %rd5, %r4, 4;", "    add.u64         %rd6, %rd4, %rd5;"]
    return "\n".join([*lines, *address, f"    st.global.f32   [%rd6], {registers[0]};"])


def _fp32() -> str:
    chains = [f"%f{i}" for i in range(CHAINS)]
    start = [f"    add.rn.f32      {f}, %f{CHAINS}, 0f3F80000{i % 10};" for i, f in enumerate(chains)]
    turn = [f"    fma.rn.f32      {f}, {f}, %f{CHAINS + 1}, %f{CHAINS};" for _ in range(8) for f in chains]
    body = [
        f"    cvt.rn.f32.u32  %f{CHAINS}, %r4;",
        f"    cvt.rn.f32.u32  %f{CHAINS + 1}, %r7;",  # 1: known to the caller, not to the compiler
        *start,
        "LOOP:",
        *turn,
        "    sub.u32         %r6, %r6, 1;",
        "    setp.ne.u32     %p2, %r6, 0;",
        "    @%p2 bra        LOOP;",
        _store_sum(chains),
    ]
    return _kernel("load_fp32", f"    .reg .f32 %f<{CHAINS + 2}>;", "\n".join(body))


def _tensor() -> str:
    """8 independent products a warp: m16n8k16 of half precision into single precision."""
    turn = [
        "    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        f"{{%f{4 * i}, %f{4 * i + 1}, %f{4 * i + 2}, %f{4 * i + 3}}}, {{%r8, %r9, %r10, %r11}}, {{%r12, %r13}}, "
        f"{{%f{4 * i}, %f{4 * i + 1}, %f{4 * i + 2}, %f{4 * i + 3}}};"
        for i in range(8)
    ]
    body = [
        *(f"    and.b32         %r{8 + i}, %r4, 0x03FF03FF;" for i in range(6)),  # small numbers: no infinities
        *(f"    cvt.rn.f32.u32  %f{i}, %r4;" for i in range(32)),
        "LOOP:",
        *turn,
        "    sub.u32         %r6, %r6, 1;",
        "    setp.ne.u32     %p2, %r6, 0;",
        "    @%p2 bra        LOOP;",
        _store_sum([f"%f{i}" for i in range(32)]),
    ]
    return _kernel("load_tensor", "    .reg .f32 %f<32>;", "\n".join(body))


def _copy() -> str:
    """Four words of 16 bytes a turn: loads first, so that enough of them are under way."""
    vectors = [f"{{%v{4 * i}, %v{4 * i + 1}, %v{4 * i + 2}, %v{4 * i + 3}}}" for i in range(4)]
    body = [
        "    mul.wide.u32    %rd5, %r4, 16;",
        "    mul.wide.u32    %rd6, %r5, 16;",  # all threads together move on by so much
        "PASS:",
        "    add.u64         %rd7, %rd3, %rd5;",
        "    add.u64         %rd8, %rd4, %rd5;",
        "    mov.u32         %r8, %r6;",
        "LOOP:",
        *(
            line
            for vector in vectors
            for line in (f"    ld.global.v4.u32 {vector}, [%rd7];", "    add.u64         %rd7, %rd7, %rd6;")
        ),
        *(
            line
            for vector in vectors
            for line in (f"    st.global.v4.u32 [%rd8], {vector};", "    add.u64         %rd8, %rd8, %rd6;")
        ),
        "    sub.u32         %r8, %r8, 1;",
        "    setp.ne.u32     %p2, %r8, 0;",
        "    @%p2 bra        LOOP;",
        "    sub.u32         %r7, %r7, 1;",
        "    setp.ne.u32     %p2, %r7, 0;",
        "    @%p2 bra        PASS;",
    ]
    return _kernel("load_copy", "    .reg .b32 %v<16>;", "\n".join(body))


def _wgmma() -> str:
    """m64n256k16 of half precision from shared memory (zeros) into 128 single precision registers of each thread."""
    results = ", ".join(f"%f{i}" for i in range(128))
    body = [
        "    mov.u32         %r8, tile;",
        "    shl.b32         %r9, %r3, 4;",  # 128 threads clear 16 bytes each, five times: 10 KiB
        "    add.u32         %r9, %r9, %r8;",
        *(f"    st.shared.v4.u32 [%r9+{2048 * i}], {{0, 0, 0, 0}};" for i in range(5)),
        "    fence.proxy.async.shared::cta;",
        "    bar.sync        0;",
        "    shr.u32         %r10, %r8, 4;",
        "    and.b32         %r10, %r10, 0x3FFF;",
        "    cvt.u64.u32     %rd7, %r10;",
        # leading byte offset 128 and stride byte offset 256, in 16 bytes, no swizzle: 8 x 8 core matrices side by side
        f"    or.b64          %rd8, %rd7, {(8 << 16) | (16 << 32)};",
        f"    add.u64         %rd9, %rd8, {2048 >> 4};",  # B follows A's 64 x 16 halves
        *(f"    mov.f32         %f{i}, 0f00000000;" for i in range(128)),
        "    setp.ne.u32     %p2, %r7, 0;",  # scale-d: add to what is there
        "LOOP:",
        "    wgmma.fence.sync.aligned;",
        *(
            f"    wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {{{results}}}, %rd8, %rd9, %p2, 1, 1, 0, 0;"
            for _ in range(4)
        ),
        "    wgmma.commit_group.sync.aligned;",
        "    wgmma.wait_group.sync.aligned 0;",
        "    sub.u32         %r6, %r6, 1;",
        "    setp.ne.u32     %p1, %r6, 0;",
        "    @%p1 bra        LOOP;",
        _store_sum([f"%f{i}" for i in range(128)]),
    ]
    registers = "    .reg .f32 %f<128>;\n    .shared .align 128 .b8 tile[10240];"
    return _kernel("load_wgmma", registers, "\n".join(body))


PTX = ".version 7.0\n.target sm_80\n.address_size 64\n" + _fp32() + _tensor() + _copy()
PTX_HOPPER = ".version 8.0\n.target sm_90a\n.address_size 64\n" + _wgmma()


class Kernel(NamedTuple):
    """`flops` and `bytes` (of device memory) of one thread in one turn of the inner loop; `most_blocks`: a processor
    holds so many. `capabilities`: the compute capabilities from and to which it runs.
    """

    name: str
    ptx: str
    flops: int
    bytes: int
    threads: int
    most_blocks: int
    capabilities: tuple[float, float] = (8.0, 99.0)


KERNELS = {
    "fp32": Kernel("load_fp32", PTX, flops=2 * 8 * CHAINS, bytes=0, threads=THREADS, most_blocks=4),
    "tensor": Kernel("load_tensor", PTX, flops=8 * 2 * 16 * 8 * 16 // 32, bytes=0, threads=THREADS, most_blocks=2),
    "copy": Kernel("load_copy", PTX, flops=0, bytes=4 * 2 * 16, threads=THREADS, most_blocks=4),
    "wgmma": Kernel(
        "load_wgmma",
        PTX_HOPPER,
        flops=4 * 2 * 64 * 256 * 16 // 128,
        bytes=0,
        threads=WGMMA_THREADS,
        most_blocks=2,
        capabilities=(9.0, 9.0),
    ),
}
