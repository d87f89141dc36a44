# Only for the optional C kernel; everything else is in pyproject.toml.

import sys
import sysconfig

from setuptools import Extension, setup

# The limited API has buffers from Python 3.11 on: one wheel then fits all later versions.
# Free-threaded builds have no limited API.
LIMITED = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "dumpscope._kernel",
            sources=["csrc/kernel.c"],
            depends=["csrc/folders.h", "csrc/reading.h", "csrc/tally.h", "csrc/version.h"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
            py_limited_api=LIMITED,
            extra_compile_args=["-O3", "-g0", "-std=gnu11"],
            optional=True,  # without a compiler, NumPy does it all
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
