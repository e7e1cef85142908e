"""Run a command with onnxruntime computing as on an x86 processor that has AVX2, and neither AVX-512 nor VNNI.

    python -m benchmarks.avx2_only abalone predict model.int8.onnx texts.txt

onnxruntime chooses its kernels by what the `cpuid` instruction says, and has no switch for it. This makes a copy of the
library in which every `cpuid` is an illegal instruction of the same length, and a handler that answers it with the bits
of AVX-512, VNNI and AMX cleared. All else runs as it is, at full speed. Needs Linux, gcc and objdump.
pytest must leave the handler in place: `pytest -p no:faulthandler`.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

CPUID, ILLEGAL = b"\x0f\xa2", b"\x0f\x0b"
HANDLER = r"""
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned char *code = (unsigned char *)registers[REG_RIP];
    if (code[0] != 0x0f || code[1] != 0x0b) { signal(number, SIG_DFL); return; }
    unsigned leaf = registers[REG_RAX], part = registers[REG_RCX], a, b, c, d;
    __cpuid_count(leaf, part, a, b, c, d);
    if (leaf == 7 && part == 0) {
        b &= ~0xdc230000u;  /* AVX512 F DQ IFMA PF ER CD BW VL */
        c &= ~0x00005842u;  /* AVX512 VBMI VBMI2 VNNI BITALG VPOPCNTDQ */
        d &= ~0x03c0010cu;  /* AVX512 4VNNIW 4FMAPS VP2INTERSECT FP16, AMX */
    }
    if (leaf == 7 && part == 1) {
        a &= ~0x00000030u;  /* AVX-VNNI, AVX512-BF16 */
        d &= ~0x00080410u;  /* AVX-VNNI-INT8, AVX-VNNI-INT16, AVX10 */
    }
    registers[REG_RAX] = a; registers[REG_RBX] = b; registers[REG_RCX] = c; registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void install(void) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGILL, &action, 0);
}
"""


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with TemporaryDirectory() as folder:
        handler = Path(folder) / "handler.so"
        compiler = ["gcc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(handler)]
        subprocess.run(compiler, input=HANDLER, text=True, check=True)
        _copy_without_cpuid(Path(folder) / "onnxruntime")
        path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "LD_PRELOAD": str(handler)}
        return subprocess.run(sys.argv[1:], env=environment, check=False).returncode


def _copy_without_cpuid(copy: Path) -> None:
    """Write the package `onnxruntime` of this Python to `copy`: links, but for the library that is changed."""
    found = importlib.util.find_spec("onnxruntime")
    if found is None or found.origin is None:
        sys.exit("onnxruntime is not installed")
    package = Path(found.origin).parent
    (copy / "capi").mkdir(parents=True)
    for file in [*package.iterdir(), *(package / "capi").iterdir()]:
        target = copy / file.relative_to(package)
        if file.name.startswith("onnxruntime_pybind11_state"):
            target.write_bytes(_without_cpuid(file))
        elif file.name != "capi":
            target.symlink_to(file)


def _without_cpuid(library: Path) -> bytes:
    """Return the library with every `cpuid` replaced; objdump tells instructions from data that looks like one."""
    sections = subprocess.run(["objdump", "-h", library], capture_output=True, text=True, check=True).stdout
    text = next(line.split() for line in sections.splitlines() if " .text " in line)
    shift = int(text[5], 16) - int(text[3], 16)  # from an address to a place in the file
    command = ["objdump", "-d", "-j", ".text", "--no-show-raw-insn", str(library)]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    content = bytearray(library.read_bytes())
    for line in code.splitlines():
        if line.endswith("cpuid"):
            place = int(line.partition(":")[0], 16) + shift
            assert content[place : place + 2] == CPUID
            content[place : place + 2] = ILLEGAL
    return bytes(content)


if __name__ == "__main__":
    sys.exit(main())
