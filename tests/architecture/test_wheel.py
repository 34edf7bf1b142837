"""What is built is what users get: the packages, typed, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sizes


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=sizes.ROOT, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("embedq-*.whl")
    return built


def test_the_wheel_holds_the_packages_and_no_tests_or_tools(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "embedq",
        "embedq_transports",
        "pyspark_embedq",
    }
    typed = {f"{top}/py.typed" for top in ("embedq", "embedq_transports", "pyspark_embedq")}
    assert typed <= set(names)
    assert "embedq/spark/log4j2.properties" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_every_module_of_the_product_is_in_the_wheel(wheel: Path) -> None:
    modules = {
        path.removeprefix("transports/")
        for path in sizes.python_files(sizes.ROOT)
        if path.startswith(("embedq/", "pyspark_embedq/", "transports/"))
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    assert modules == packed


def test_the_packages_load_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import embedq, embedq_transports;"
        "print(embedq.__file__, embedq_transports.__file__)"
    )
    loaded = subprocess.check_output(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, timeout=60
    )
    assert loaded.count(str(wheel)) == 2
