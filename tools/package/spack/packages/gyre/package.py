# SPDX-License-Identifier: Apache-2.0
# tools/package/spack: a repository for Spack with one recipe; docs/packages.md.
#
# `spack repo add tools/package/spack && spack dev-build gyre@0.2.0` builds the clone that it is called in:
# there is no release yet whose tarball Spack could fetch.
from spack.package import *


class Gyre(MakefilePackage):
    """Collective communication in C over shared memory, UCX and verbs, with tools and a GPT trainer."""

    license("Apache-2.0")
    version("0.2.0")

    variant("tools", default=True, description="ucx-run, gyre-perf, the trainer and libgyre-train")
    variant("verbs", default=False, description="a transport of its own over libibverbs; UCX drives RDMA adapters without it")
    variant("cuda", default=False, description="device memory")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type=("build", "run"))
    depends_on("hwloc@2.1:")
    depends_on("ucx@1.12:")
    depends_on("libsodium")
    depends_on("xxhash@0.8:")
    depends_on("jansson@2.11:", when="+tools")
    depends_on("openblas", when="+tools")
    depends_on("pcre2", when="+tools")
    depends_on("utf8proc", when="+tools")
    depends_on("rdma-core", when="+verbs")
    depends_on("cuda", when="+cuda")

    def goals(self, spec):
        yes = {True: "1", False: "0"}
        words = [
            "PREFIX=" + self.prefix,
            "WERROR=0",
            "CUDA=" + yes[spec.satisfies("+cuda")],
            "VERBS=" + yes[spec.satisfies("+verbs")],
            "SENTENCEPIECE=0",
        ]
        if spec.satisfies("+cuda"):
            words.append("CUDA_HOME=" + spec["cuda"].prefix)
        return words

    def setup_build_environment(self, env):
        # set-up looks, and leaves installing to Spack
        env.set("NO_INSTALL", "1")

    def build(self, spec, prefix):
        words = ["lib"] + (["tools", "build/lib/libgyre-train.a"] if spec.satisfies("+tools") else [])
        make(*words, *self.goals(spec))

    def install(self, spec, prefix):
        make("install" if spec.satisfies("+tools") else "install-lib", *self.goals(spec))
