"""What CMake must know to compile against the torch of this Python: `name=value;value` lines."""

import os
import sysconfig

import torch
from torch.utils import cpp_extension


def main():
    includes = [path for path in cpp_extension.include_paths() if os.path.isdir(path)]
    context = "torch/csrc/distributed/autograd/context/context.h"
    missing = not any(os.path.exists(os.path.join(path, context)) for path in includes)
    definitions = [f"_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    for part in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):  # so that torch's Python types are ours, too
        value = getattr(torch._C, f"_PYBIND11_{part}", None)
        if value is not None:
            definitions.append(f'PYBIND11_{part}="{value}"')
    print("version=" + torch.__version__)
    print("cuda=" + (torch.version.cuda or ""))
    print("includes=" + ";".join(includes))
    print("libraries=" + ";".join(cpp_extension.library_paths()))
    print("definitions=" + ";".join(definitions))
    print("suffix=" + sysconfig.get_config_var("EXT_SUFFIX"))
    print("context_header_missing=" + str(int(missing)))


if __name__ == "__main__":
    main()
