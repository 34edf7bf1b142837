"""Which file systems a database may be on.

Knows: mount tables, those of a test and the real one.
Does not know: modes and owners of files.
"""

import pytest

from embedq.errors import InvalidOption, NetworkFilesystem
from embedq.storage import placement
from embedq.storage.placement import Mount, parse_mounts, prepare
from tests.storage.mounts import mounted, tmpfs


def placed_on(tmp_path, *mounts):
    return prepare(tmp_path / "shop.db", mounts=[Mount("/", "ext4"), *mounts])


@pytest.mark.parametrize(
    "kind",
    """nfs nfs4 cifs smb3 smbfs afs 9p ceph glusterfs fuse.glusterfs fuse.sshfs lustre gpfs beegfs
    ocfs2 gfs2 fuse.rclone fuse.s3fs fuse.ceph NFS4""".split(),
)
def test_a_network_file_system_is_refused_before_anything_is_created(tmp_path, kind):
    with pytest.raises(NetworkFilesystem, match=kind) as caught:
        placed_on(tmp_path, Mount(str(tmp_path.resolve()), kind))
    assert caught.value.details == {"filesystem": kind, "mount": str(tmp_path.resolve())}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["xfs", "btrfs", "tmpfs", "overlay", "virtiofs", "fuse.bindfs"])
def test_a_local_file_system_is_accepted_and_named(tmp_path, kind):
    assert placed_on(tmp_path, Mount(str(tmp_path.resolve()), kind)).filesystem == kind


def test_the_longest_mount_point_decides(tmp_path):
    here = tmp_path.resolve()
    above, below = Mount(str(here.parent), "nfs"), Mount(str(here), "xfs")
    assert placed_on(tmp_path, below, above).filesystem == "xfs"
    with pytest.raises(NetworkFilesystem):
        placed_on(tmp_path, Mount(str(here.parent), "xfs"), Mount(str(here), "nfs"))


def test_a_mount_point_with_the_same_beginning_is_not_ours(tmp_path):
    here = str(tmp_path.resolve())
    assert placed_on(tmp_path, Mount(here[:-1], "nfs")).filesystem == "ext4"


def test_the_last_of_several_mounts_at_one_point_is_on_top(tmp_path):
    here = str(tmp_path.resolve())
    assert placed_on(tmp_path, Mount(here, "nfs"), Mount(here, "xfs")).filesystem == "xfs"
    with pytest.raises(NetworkFilesystem):
        placed_on(tmp_path, Mount(here, "xfs"), Mount(here, "nfs"))


def test_9p_is_accepted_as_the_root_of_a_sandbox_only(tmp_path):
    assert prepare(tmp_path / "shop.db", mounts=[Mount("/", "9p")]).filesystem == "9p"
    with pytest.raises(NetworkFilesystem):
        placed_on(tmp_path, Mount(str(tmp_path.resolve()), "9p"))


def test_a_file_mounted_by_itself_is_refused(tmp_path):
    path = tmp_path.resolve() / "shop.db"
    with pytest.raises(InvalidOption, match="mount point") as caught:
        placed_on(tmp_path, Mount(str(path), "ext4"))
    assert "folder" in caught.value.hint


def test_the_link_target_decides_about_the_file_system(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "net" / "shop.db")
    with pytest.raises(NetworkFilesystem):
        prepare(tmp_path / "link.db", mounts=[Mount(str(tmp_path.resolve() / "net"), "nfs")])


def test_the_mount_table_is_read_with_its_escapes_and_its_oddities():
    text = (
        "22 1 0:21 / / rw,relatime - ext4 /dev/root rw\n"
        "31 22 0:40 / /mnt/with\\040space\\011tab\\134n rw shared:5 master:2 - nfs4 host:/x rw\n"
        "32 22 0:41 / /mnt/line\u2028separator rw - fuse.ssh\\146s source rw\n"
        "a line of some later kernel\n"
        "short - line\n"
        "\n"
    )
    assert parse_mounts(text) == (
        Mount("/", "ext4"),
        Mount("/mnt/with space\ttab\\n", "nfs4"),
        Mount("/mnt/line\u2028separator", "fuse.sshfs"),
    )


def test_without_a_mount_table_the_file_system_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(placement, "_MOUNTINFO", tmp_path / "absent")
    assert prepare(tmp_path / "shop.db").filesystem is None


def test_a_table_without_our_mount_leaves_the_file_system_unknown(tmp_path):
    assert prepare(tmp_path / "shop.db", mounts=[Mount("/nowhere", "nfs")]).filesystem is None


@pytest.mark.reliability
def test_a_real_mount_with_a_space_in_its_name_is_recognised(tmp_path):
    with tmpfs(tmp_path / "with space", "1m") as point:
        assert prepare(point / "shop.db").filesystem == "tmpfs"
    assert prepare(tmp_path / "shop.db").filesystem != "tmpfs"


@pytest.mark.reliability
def test_a_file_really_mounted_by_itself_is_refused(tmp_path):
    outside = prepare(tmp_path / "outside.db").path
    inside = prepare(tmp_path / "inside.db").path
    with mounted(inside, "--bind", outside), pytest.raises(InvalidOption, match="mount point"):
        prepare(inside)
