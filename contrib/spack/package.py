# SPDX-License-Identifier: Apache-2.0 OR MIT
# `cargo xtask dist` writes this recipe with the checksum into target/dist/contrib/spack. To use it: copy it to
# packages/lads/ of a Spack repository, and start Spack in the directory that has the source archive.

import os

from spack_repo.builtin.build_systems.cargo import CargoPackage

from spack.package import *


class Lads(CargoPackage):
    """Layout-aware bulk data mover between parallel file systems."""

    homepage = "https://www.usenix.org/conference/fast15/technical-sessions/presentation/kim"
    url = f"file://{os.getcwd()}/lads-0.1.0.tar.gz"
    manual_download = True

    license("Apache-2.0 OR MIT")

    version("0.1.0", sha256="@SHA256@")

    variant("mpi", default=False, description="Libraries with which MPI programs use remote files")

    depends_on("c", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("mpi", when="+mpi")

    build_directory = "crates/lads-cli"

    @run_after("install", when="+mpi")
    def install_shims(self):
        with working_dir(self.stage.source_path):
            mpicc = self.spec["mpi"].mpicc
            cargo = which("cargo", required=True)
            cargo("xtask", "shims", "--mpicc", mpicc, "--out", join_path(self.prefix.lib, "lads"))
