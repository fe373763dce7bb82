"""Packaging; the exact versions that development and CI use stand in tools/requirements-*.txt."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
README = ROOT / "README.md"
VERSION = re.search(r'^__version__ = "([^"]+)"', (ROOT / "rescore" / "__init__.py").read_text(), re.MULTILINE)
assert VERSION
# Links into the repository mean nothing on a package index, and where it is published is not known: their text stays.
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)\s]+\)")

# What k2 1.23.4 needs.  k2 itself is no requirement here: its wheels for five Pythons carry one tag, so that pip may
# take a file that cannot be imported; tools/requirements-k2.txt names the right one by its hash.
K2_PLATFORM = "python_version == '3.10' and sys_platform == 'linux' and platform_machine == 'x86_64'"

# lhotse resamples by scipy where there is no torchaudio, and does not ask for it.
ASR = ["lhotse>=1.32", "lilcom>=1.7", "urllib3>=1.26", "scipy>=1.9", "soundfile>=0.12", "kaldi-native-fbank>=1.20"]
EXTRAS = {
    "k2": [
        f"{requirement}; {K2_PLATFORM}"
        for requirement in ("torch==1.13.1", "torchaudio==0.13.1", "numpy<2", "lhotse==1.32.1", "graphviz")
    ],
    # kenlm 0.3.0 cannot be compiled for CPython 3.13; camel-kenlm has wheels of the same module.
    "ngram": ["kenlm>=0.3; python_version < '3.13'", "camel-kenlm>=2026.2; python_version >= '3.13'"],
    "train": ["tensorboard>=2.10", "six>=1.16"],
    "plot": ["matplotlib>=3.7"],
    "pandas": ["pandas>=1.5"],  # data frames of results in Python
    "hf": ["transformers>=5"],
    "gguf": ["transformers>=5", "gguf>=0.17", "accelerate>=1"],  # llama.cpp's files: hf:FILE.gguf
    "lora": ["transformers>=5", "peft>=0.17"],  # adapters: hf:NAME+ADAPTER
    "quantized": ["transformers>=5", "accelerate>=1", "bitsandbytes>=0.46"],  # hf:NAME?bits=4, ?device_map=auto
    "text": ["num2words>=0.5.13", "whisper-normalizer>=0.1.12"],
    "ray": ["ray[default]>=2.40"],
    "bench": ["transformers>=5", "speechbrain>=1.1"],
    "asr": ASR,
    "moonshine": [*ASR, "onnxruntime>=1.23", "moonshine-voice==0.0.49"],
    "demo": ["pocketsphinx>=5.0.3", "ttspico>=0.3", "espeakng-loader>=0.2.4"],
    "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.7", "mkdocstrings-python>=2", "pymdown-extensions<12"],
    "dev": ["pytest>=7", "pytest-xdist>=3", "hypothesis>=6", "ruff", "mypy", "onnx>=1.17"],
}
# transformers, what builds on it and SpeechBrain need a newer torch than the one of k2's wheel, and moonshine-voice,
# taken for the weights in its wheel (later ones have none), comes for few systems: these extras are asked for by name.
BY_NAME = ("hf", "gguf", "lora", "quantized", "bench", "moonshine")
EXTRAS["all"] = [
    requirement for name, requirements in EXTRAS.items() if name not in BY_NAME for requirement in requirements
]


class Source(sdist):
    """The source distribution; of a folder that has two names, a link, setuptools takes one."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        links = [path for path in ROOT.glob("egs/*/*/*") if path.is_symlink() and path.is_dir()]
        for folder in {*links, *(path.resolve() for path in links)}:
            shutil.copytree(folder, Path(base_dir) / folder.relative_to(ROOT), dirs_exist_ok=True)


setup(
    name="rescore",
    version=VERSION.group(1),
    description="Lattice and N-best rescoring for speech recognition with neural and n-gram language models",
    long_description=LINK.sub(r"\1", README.read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords="speech recognition, language model, lattice, n-best, rescoring, Kaldi, k2, icefall",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Natural Language :: English",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Multimedia :: Sound/Audio :: Speech",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    install_requires=[
        "click>=8.1",
        "kaldialign>=0.7",
        "numpy>=1.22,<2; python_version < '3.11'",
        "numpy>=1.22; python_version >= '3.11'",
        "pyyaml>=6",
        "rich>=12",
        "safetensors>=0.3",
        "sentencepiece>=0.1.97",
        "torch>=1.13.1",
    ],
    extras_require=EXTRAS,
    packages=find_packages(include=["rescore", "rescore.*", "lm_zoo", "lm_zoo.*", "asr", "asr.*"]),
    package_data={
        "rescore": ["py.typed", "*.pyi", "workflows/report/*.css", "workflows/report/*.js", "sample/*"],
        "lm_zoo": ["py.typed", "pretrained/**/*"],
        "asr": ["py.typed", "configs/*.json", "pretrained/**/*"],
    },
    entry_points={
        "console_scripts": ["rescore=rescore.cli.main:main", "asr=asr.cli.main:main"],
        "pytest11": ["lm_zoo=lm_zoo.testing.plugin"],
    },
    cmdclass={"sdist": Source},
    zip_safe=False,
)
