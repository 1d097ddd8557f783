"""Control groups in both versions, over folders that look like theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry_runtime.workers.sandbox.cgroups import (
    Group,
    GroupLimits,
    Hierarchy,
    find_hierarchies,
)

LIMITS = GroupLimits(memory_bytes=1 << 28, num_tasks=100, cpus=1.5)


def a_process(folder: Path, groups: str, mounts: str) -> str:
    (folder / "cgroup").write_text(groups)
    (folder / "mountinfo").write_text(mounts.replace("ROOT", str(folder)))
    return str(folder)


def test_version_2_is_found_with_its_controllers(tmp_path: Path) -> None:
    own = tmp_path / "fs" / "runtime.service"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids\n")
    mounts = "30 23 0:26 / ROOT/fs rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    process = a_process(tmp_path, "0::/runtime.service\n", mounts)

    assert find_hierarchies(process) == [
        Hierarchy(version=2, controllers=("memory", "pids", "cpu"), own=own)
    ]


def test_version_1_is_found_by_controller(tmp_path: Path) -> None:
    mounts = (
        "31 30 0:27 / ROOT/memory rw - cgroup cgroup rw,memory\n"
        "32 30 0:28 / ROOT/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 30 0:29 / ROOT/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
    )
    groups = "9:name=systemd:/x\n4:memory:/runtime\n1:cpu,cpuacct:/\n"

    found = find_hierarchies(a_process(tmp_path, groups, mounts))

    assert [(each.controllers, each.own) for each in found] == [
        (("memory",), tmp_path / "memory" / "runtime"),
        (("cpu",), tmp_path / "cpu,cpuacct"),
    ]


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    mounts = "31 30 0:27 /docker/abc ROOT/memory ro - cgroup cgroup rw,memory\n"

    [found] = find_hierarchies(a_process(tmp_path, "4:memory:/docker/abc\n", mounts))

    assert found.own == tmp_path / "memory"


def test_a_group_outside_of_what_is_mounted_is_of_no_use(tmp_path: Path) -> None:
    mounts = "31 30 0:27 /docker/abc ROOT/memory rw - cgroup cgroup rw,memory\n"

    assert find_hierarchies(a_process(tmp_path, "4:memory:/other\n", mounts)) == []


def test_version_2_is_limited_by_its_files(tmp_path: Path) -> None:
    hierarchy = Hierarchy(version=2, controllers=("memory", "pids", "cpu"), own=tmp_path)

    group = Group.make([hierarchy], "around", LIMITS)
    group.add(4711)

    files = {path.name: path.read_text() for path in (tmp_path / "around").iterdir()}
    assert files == {
        "memory.max": "268435456",
        "pids.max": "100",
        "cpu.max": "150000 100000",
        "cgroup.procs": "4711",
    }
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_version_1_is_limited_in_each_hierarchy(tmp_path: Path) -> None:
    hierarchies = [
        Hierarchy(version=1, controllers=("memory",), own=tmp_path / "memory"),
        Hierarchy(version=1, controllers=("cpu",), own=tmp_path / "cpu"),
        Hierarchy(version=1, controllers=("pids",), own=tmp_path / "pids"),
    ]
    for hierarchy in hierarchies:
        hierarchy.own.mkdir()

    Group.make(hierarchies, "around", GroupLimits(memory_bytes=1 << 28, cpus=0.5))

    written = {
        f"{path.parent.parent.name}/{path.name}": path.read_text()
        for path in tmp_path.glob("*/around/*")
    }
    assert written == {
        "memory/memory.limit_in_bytes": "268435456",
        "cpu/cpu.cfs_period_us": "100000",
        "cpu/cpu.cfs_quota_us": "50000",
    }


def test_an_isolates_group_is_only_where_it_is_limited(tmp_path: Path) -> None:
    hierarchies = [
        Hierarchy(version=1, controllers=(name,), own=tmp_path / name)
        for name in ("memory", "pids")
    ]
    for hierarchy in hierarchies:
        hierarchy.own.mkdir()
    around = Group.make(hierarchies, "around", LIMITS)

    around.child("7", GroupLimits(memory_bytes=1 << 27), ("memory",))

    assert [str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/around/7")] == [
        "memory/around/7"
    ]


def test_a_group_that_cannot_be_limited_is_not_left(tmp_path: Path) -> None:
    hierarchies = [
        Hierarchy(version=1, controllers=("memory",), own=tmp_path / "memory"),
        Hierarchy(version=1, controllers=("pids",), own=tmp_path / "missing"),
    ]
    (tmp_path / "memory").mkdir()

    with pytest.raises(FileNotFoundError):
        Group.make(hierarchies, "around", GroupLimits(num_tasks=1, memory_bytes=None))

    assert list((tmp_path / "memory").iterdir()) == []
