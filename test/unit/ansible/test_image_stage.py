# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Images come into a pool from real mirrors: never a wrong one in place, never a good one lost, nothing left beside them."""

import gzip
import lzma
import multiprocessing
import os
import signal
import struct
import subprocess
import time

import pytest

import mirror as mirrors
from plugins.module_utils import image_source, image_stage, image_store
from staging import NAME, Host, Pool, digest, make_image


def zstd(content):
    return subprocess.run(["zstd", "-cq"], input=content, stdout=subprocess.PIPE, check=True).stdout


PACK = {"gzip": gzip.compress, "xz": lzma.compress, "zstd": zstd, "raw": bytes}
FAILURES = (image_source.Failed, image_store.Failed, image_stage.Failed)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return mirrors.make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(name="mirror")
def _mirror(certificate):
    with mirrors.serve(*certificate) as one:
        yield one


@pytest.fixture(name="second")
def _second(certificate):
    with mirrors.serve(*certificate) as one:
        yield one


@pytest.fixture(scope="module", name="image")
def _image(tmp_path_factory):
    return make_image(tmp_path_factory.mktemp("image") / "a.qcow2")


@pytest.fixture(scope="module", name="other")
def _other(tmp_path_factory):
    return make_image(tmp_path_factory.mktemp("image") / "b.qcow2", seed=2)


@pytest.fixture(name="pool")
def _pool(tmp_path, certificate):
    directory = tmp_path / "pool"
    directory.mkdir()
    # The account without rights reaches an image by its descriptor alone.
    directory.chmod(0o711)
    return Pool(directory, certificate[0])


def put(mirror, content, path="/image"):
    mirror.files[path] = content
    return mirror.url + path


def refuse(pool, match, content, *urls, leftovers=(), **changes):
    """What is in place stays as it is while something is refused."""
    before = pool.path.read_bytes() if pool.path.exists() else None
    with pytest.raises(FAILURES, match=match):
        pool.stage(digest(content), *urls, **changes)
    assert (pool.path.read_bytes() if pool.path.exists() else None) == before
    assert pool.leftovers() == (["json"] if before else []) + list(leftovers)


@pytest.mark.parametrize("name", PACK)
def test_each_packing_is_told_by_its_first_bytes(pool, mirror, image, name):
    url = put(mirror, PACK[name](image))
    assert pool.stage(digest(image), url)["changed"]
    assert pool.path.read_bytes() == image
    assert pool.leftovers() == ["json"]
    assert pool.path.stat().st_mode & 0o777 == 0o644


def test_a_second_run_asks_nobody_and_reads_nothing(pool, mirror, image, monkeypatch):
    url = put(mirror, image)
    pool.stage(digest(image), url)
    asked = len(mirror.requests)
    monkeypatch.setattr("plugins.module_utils.image_check.digest", None)
    assert not pool.stage(digest(image), url)["changed"]
    assert len(mirror.requests) == asked


def test_a_file_of_the_host_is_a_source(pool, tmp_path, image):
    source = tmp_path / "a file.gz"
    source.write_bytes(gzip.compress(image))
    pool.stage(digest(image), source.as_uri())
    assert pool.path.read_bytes() == image
    assert source.exists() and pool.leftovers() == ["json"]


def test_an_unpacked_file_of_the_host_stays_where_it_is(pool, tmp_path, image):
    source = tmp_path / "a.qcow2"
    source.write_bytes(image)
    pool.stage(digest(image), source.as_uri())
    assert source.read_bytes() == image == pool.path.read_bytes()
    assert source.stat().st_ino != pool.path.stat().st_ino


def test_a_download_that_breaks_off_goes_on_where_it_was(pool, mirror, image):
    url = put(mirror, image)
    mirror.cut = [1_000_000, 500_000]
    pool.stage(digest(image), url)
    assert pool.path.read_bytes() == image
    assert mirror.ranges() == [None, "bytes=1000000-", "bytes=1500000-"]


def test_without_a_validator_a_download_begins_anew(pool, mirror, image):
    url = put(mirror, image)
    mirror.etag, mirror.cut = False, [1_000_000]
    pool.stage(digest(image), url)
    assert pool.path.read_bytes() == image
    assert mirror.ranges() == [None, None]


def test_a_file_that_has_changed_on_the_mirror_is_not_glued_to_the_old_one(pool, mirror, image, other):
    url = put(mirror, other)
    mirror.slow = 0.02
    with pytest.raises(image_source.Unfinished):
        pool.stage(digest(image), url, deadline=time.monotonic() + 0.2)
    mirror.slow = 0
    put(mirror, image)
    pool.stage(digest(image), url)
    assert pool.path.read_bytes() == image


def test_a_truncated_download_is_never_put_in_place(pool, mirror, image):
    url = put(mirror, image)
    mirror.cut = [10_000] + [0] * 9
    refuse(pool, "broke off after 10000 of", image, url, leftovers=["partial", "source"])


def test_a_truncated_file_is_never_put_in_place(pool, mirror, image):
    refuse(pool, "cut short", image, put(mirror, gzip.compress(image)[:-1000]))


def test_a_wrong_digest_is_never_put_in_place(pool, mirror, image, other):
    url = put(mirror, image)
    pool.stage(digest(image), url)
    refuse(pool, "its image has the sha256 %s, and %s is wanted" % (digest(image), digest(other)), other, url)


def test_the_next_mirror_is_asked_and_each_failure_is_named(pool, mirror, second, image, other):
    urls = [mirror.url + "/missing", put(mirror, other, "/other"), put(second, image)]
    pool.stage(digest(image), *urls)
    assert pool.path.read_bytes() == image
    assert [f["url"] for f in pool.failed] == urls[:2]
    assert "404" in pool.failed[0]["reason"] and "sha256" in pool.failed[1]["reason"]


def test_all_failures_are_in_the_error(pool, mirror, second, image):
    refuse(pool, "/one: it answers 404 .*/two: it answers 404", image, mirror.url + "/one", second.url + "/two")


def test_a_source_that_has_failed_is_not_asked_again(pool, mirror, second, image):
    urls = [put(mirror, image), put(second, image)]
    failed = [{"url": urls[0], "reason": "said before"}]
    image_stage.stage(pool.store(digest(image)), pool.wanted(*urls), pool.host, failed)
    assert not mirror.requests and pool.path.read_bytes() == image


def test_a_transfer_that_stalls_fails(pool, mirror, second, image):
    mirror.silent = True
    pool.stage(digest(image), put(mirror, image), put(second, image))
    assert pool.path.read_bytes() == image
    assert "timed out" in pool.failed[0]["reason"] or "stalled" in pool.failed[0]["reason"]


def test_a_server_whose_ca_is_not_known_is_refused(pool, mirror, image):
    refuse(pool, "CERTIFICATE_VERIFY_FAILED", image, put(mirror, image), source={"ca_file": None})
    assert not mirror.requests


def test_a_ca_may_be_given_as_text(pool, mirror, image):
    pool.stage(digest(image), put(mirror, image), source={"ca_file": None, "ca_pem": pool.ca.read_text()})
    assert pool.path.read_bytes() == image


def test_basic_authentication(pool, mirror, image):
    mirror.password = "anna:secret"
    url = put(mirror, image)
    refuse(pool, "401", image, url, source={"username": "anna", "password": "wrong"})
    pool.stage(digest(image), url, source={"username": "anna", "password": "secret"})
    assert pool.path.read_bytes() == image


def test_the_password_follows_a_redirect_on_its_host_and_to_no_other(pool, mirror, second, image):
    mirror.redirects = {"/a": mirror.url + "/b", "/b": put(second, image)}
    pool.stage(digest(image), mirror.url + "/a", source={"username": "anna", "password": "secret"})
    assert pool.path.read_bytes() == image
    assert ["Authorization" in headers for _, headers in mirror.requests] == [True, True]
    assert ["Authorization" in headers for _, headers in second.requests] == [False]


@pytest.mark.parametrize("target", ["http://localhost:1/image", "file:///etc/hostname", "ftp://localhost/image"])
def test_a_redirect_that_leaves_https_is_refused(pool, mirror, image, target):
    mirror.redirects = {"/a": target}
    refuse(pool, "not https|not allowed", image, mirror.url + "/a")


def test_a_redirect_without_an_end_is_refused(pool, mirror, image):
    mirror.redirects = {"/a": mirror.url + "/a"}
    refuse(pool, "redirect", image, mirror.url + "/a")
    assert len(mirror.requests) < 10


def test_an_image_with_a_backing_file_is_refused(pool, mirror, tmp_path, image):
    (tmp_path / "base.qcow2").write_bytes(image)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", tmp_path / "base.qcow2", "-F", "qcow2", tmp_path / "a.qcow2"], check=True)
    evil = (tmp_path / "a.qcow2").read_bytes()
    refuse(pool, "backing file", evil, put(mirror, gzip.compress(evil)))


def test_an_image_with_an_external_data_file_is_refused(pool, mirror, tmp_path):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-o", "data_file=%s" % (tmp_path / "data"), tmp_path / "a.qcow2", "1M"], check=True)
    evil = (tmp_path / "a.qcow2").read_bytes()
    refuse(pool, "external data file", evil, put(mirror, evil))


def test_unknown_features_are_refused(pool, mirror, image):
    evil = bytearray(image)
    struct.pack_into(">Q", evil, 72, 1 << 7)
    refuse(pool, "not known here", bytes(evil), put(mirror, bytes(evil)))


def test_a_raw_disk_is_refused(pool, mirror):
    refuse(pool, "not a qcow2 image", bytes(1 << 20), put(mirror, bytes(1 << 20)))


def test_what_qemu_img_finds_corrupt_is_refused(pool, mirror, image):
    evil = bytearray(image)
    (l1,) = struct.unpack(">Q", evil[40:48])
    struct.pack_into(">Q", evil, l1, (1 << 63) | (1 << 40))
    refuse(pool, "corrupt", bytes(evil), put(mirror, bytes(evil)))


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_a_decompression_bomb_is_stopped_at_the_limit(pool, mirror, name):
    bomb = bytes(32 << 20)
    refuse(pool, "larger than the limit of 4194304 bytes", bomb, put(mirror, PACK[name](bomb)), max_size=4 << 20)


def test_a_missing_qemu_img_is_named_before_anything_is_fetched(pool, mirror, image, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    refuse(pool, "install the package qemu-utils", image, put(mirror, image))
    assert not mirror.requests


@pytest.fixture(name="small")
def _small(pool):
    """The pool's directory as a file system of 8 MiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0711", "tmpfs", pool.directory], check=True)
    yield pool
    subprocess.run(["umount", "--lazy", pool.directory], check=True)


def test_space_is_checked_before_the_first_byte(small, mirror, image):
    (small.directory / "theirs").write_bytes(bytes(7 << 20))
    refuse(small, "not enough space in %s: %d bytes are needed.*are available" % (small.directory, len(image)), image, put(mirror, image))
    assert len(mirror.requests) == 1


def test_space_of_the_unpacked_image_is_checked_where_it_is_known(small, mirror, image):
    packed = gzip.compress(image)
    refuse(small, "not enough space", image, put(mirror, packed), size=7 << 20)


def test_what_has_to_stay_free_stays_free(small, mirror, image):
    refuse(small, "7340032 more have to stay free", image, put(mirror, image), reserve=7 << 20)


def test_a_disk_that_is_full_half_way_loses_nothing(small, mirror, image, other):
    small.stage(digest(image), put(mirror, image))
    large = gzip.compress(other + bytes(16 << 20))
    refuse(small, "is full|not enough space", other + bytes(16 << 20), put(mirror, large))
    assert small.path.read_bytes() == image


def in_process(function, *args):
    """Run a function in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=function, args=args, daemon=True)
    process.start()
    return process


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("name", ["raw", "gzip"])
def test_a_run_that_is_killed_half_way_is_resumed(pool, mirror, image, name):
    url = put(mirror, PACK[name](image))
    mirror.slow = 0.05
    process = in_process(pool.stage, digest(image), url)
    partial = pool.store(digest(image)).partial
    wait_for(lambda: os.path.exists(partial) and os.path.getsize(partial) >= 1 << 20)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not pool.path.exists() and pool.leftovers() == ["partial", "source"]
    mirror.slow = 0
    pool.stage(digest(image), url)
    assert pool.path.read_bytes() == image and pool.leftovers() == ["json"]
    assert mirror.ranges()[0] is None and int(mirror.ranges()[1][6:-1]) >= 1 << 20


def test_a_run_that_is_killed_while_it_replaces_an_image_loses_none(pool, mirror, image, other, monkeypatch):
    pool.stage(digest(image), put(mirror, image))

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    for step in ("os.rename", "plugins.module_utils.image_store.sync_directory"):

        def killed(step=step):
            with pytest.MonkeyPatch.context() as patch:
                # The record is written in one step as well, and that one passes.
                real = os.rename
                patch.setattr(step, die if step != "os.rename" else lambda a, b: real(a, b) if b.endswith(".json") or b.endswith(".source") else die())
                pool.stage(digest(other), put(mirror, other))

        url = put(mirror, other)
        process = in_process(killed)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert pool.path.read_bytes() in (image, other)
    pool.stage(digest(other), url)
    assert pool.path.read_bytes() == other and pool.leftovers() == ["json", "kept"]


def test_two_runs_at_once_fetch_once_and_both_succeed(pool, mirror, image):
    url = put(mirror, gzip.compress(image))
    mirror.slow = 0.02
    processes = [in_process(pool.stage, digest(image), url) for _ in range(2)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert pool.path.read_bytes() == image and pool.leftovers() == ["json"]
    assert len(mirror.requests) == 1


def test_two_runs_in_slices_work_on_one_download(pool, mirror, image):
    url = put(mirror, image)
    mirror.slow = 0.02

    def run():
        while True:
            try:
                return pool.stage(digest(image), url, deadline=time.monotonic() + 0.1)
            except image_source.Unfinished:
                pass

    processes = [in_process(run) for _ in range(2)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert pool.path.read_bytes() == image
    assert len([r for r in mirror.ranges() if r is None]) == 1


def test_a_slice_says_how_far_it_is(pool, mirror, image):
    url = put(mirror, image)
    mirror.slow = 0.02
    with pytest.raises(image_source.Unfinished) as unfinished:
        pool.stage(digest(image), url, deadline=time.monotonic() + 0.2)
    progress = unfinished.value.progress
    assert 0 < progress["done"] < progress["total"] == len(image) and progress["url"] == url


def test_a_used_image_is_not_replaced(pool, mirror, image, other):
    pool.stage(digest(image), put(mirror, image))
    xml = "<domain><devices><disk><source file='%s'/></disk></devices></domain>" % pool.path
    pool.host = Host(pool.directory, [("worker", xml)])
    refuse(pool, "in use by domain worker", other, put(mirror, other, "/other"))
    assert [path for path, _ in mirror.requests] == ["/image"]


def test_an_image_below_a_volume_is_not_replaced(pool, mirror, image, other):
    pool.stage(digest(image), put(mirror, image))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", NAME, "-F", "qcow2", "overlay.qcow2"], cwd=pool.directory, check=True)
    refuse(pool, "in use by volume %s/overlay.qcow2" % pool.directory, other, put(mirror, other))


def test_a_machine_that_comes_during_the_download_keeps_its_image(pool, mirror, image, other):
    pool.stage(digest(image), put(mirror, image))
    answers = [[], ["domain late"]]
    pool.host.users = lambda _: answers.pop(0)
    refuse(pool, "in use by domain late", other, put(mirror, other), leftovers=["partial", "source"])


def test_a_predecessor_is_kept_and_comes_back_without_a_download(pool, mirror, image, other):
    one, two = put(mirror, image, "/1"), put(mirror, other, "/2")
    pool.stage(digest(image), one)
    pool.stage(digest(other), two)
    assert pool.path.read_bytes() == other and pool.leftovers() == ["json", "kept"]
    asked = len(mirror.requests)
    assert pool.stage(digest(image), one)["changed"]
    assert pool.path.read_bytes() == image and len(mirror.requests) == asked
    assert open(pool.store(digest(other)).path, "rb").read() == image
    assert pool.leftovers() == ["json", "kept"]


def test_only_so_many_predecessors_are_kept(pool, mirror, image, other):
    pool.stage(digest(image), put(mirror, image))
    pool.stage(digest(other), put(mirror, other), keep=0)
    assert pool.leftovers() == ["json"]


def test_a_file_that_was_there_before_is_adopted_if_it_is_the_image(pool, mirror, image):
    pool.path.write_bytes(image)
    assert not pool.stage(digest(image), put(mirror, image))["changed"]
    assert not mirror.requests
    assert image_stage.remove(pool.store(""), pool.host, False) == {"changed": True, "left": []}
    assert pool.path.read_bytes() == image and not (pool.directory / image_store.STAGING).exists()


def test_a_file_of_somebody_else_is_not_replaced(pool, mirror, image):
    pool.path.write_bytes(b"theirs")
    with pytest.raises(image_stage.Failed, match="was not put there by this role"):
        pool.stage(digest(image), put(mirror, image))
    assert pool.path.read_bytes() == b"theirs" and pool.leftovers() == []


def test_a_link_is_not_followed(pool, mirror, tmp_path, image):
    (tmp_path / "theirs").write_bytes(b"theirs")
    pool.path.symlink_to(tmp_path / "theirs")
    with pytest.raises(image_stage.Failed, match="not a regular file"):
        pool.stage(digest(image), put(mirror, image))
    assert (tmp_path / "theirs").read_bytes() == b"theirs"


def test_an_image_that_was_damaged_is_mended(pool, mirror, image):
    url = put(mirror, image)
    pool.stage(digest(image), url)
    pool.path.write_bytes(image[:5000])
    assert pool.stage(digest(image), url)["changed"]
    assert pool.path.read_bytes() == image


def test_a_pushed_file_is_continued_and_put_in_place(pool, image):
    packed = gzip.compress(image)
    upload = {"id": "controller:/a:1", "size": len(packed)}
    url = "upload:" + upload["id"]
    with pytest.raises(image_source.Unfinished) as unfinished:
        pool.stage(digest(image), url, upload=upload)
    assert unfinished.value.progress["done"] == 0
    with open(unfinished.value.progress["path"], "r+b") as partial:
        partial.write(packed[:1000])
    with pytest.raises(image_source.Unfinished) as unfinished:
        pool.stage(digest(image), url, upload=upload)
    assert unfinished.value.progress["done"] == 1000
    with open(unfinished.value.progress["path"], "ab") as partial:
        partial.write(packed[1000:])
    assert pool.stage(digest(image), url, upload=upload)["changed"]
    assert pool.path.read_bytes() == image and pool.leftovers() == ["json"]


def test_removal_takes_away_what_was_staged_and_nothing_else(pool, mirror, image, other):
    pool.stage(digest(image), put(mirror, image))
    pool.stage(digest(other), put(mirror, other))
    (pool.directory / "theirs").write_bytes(b"")
    assert image_stage.remove(pool.store(""), pool.host, False)["changed"]
    assert os.listdir(pool.directory) == ["theirs"]
    assert not image_stage.remove(pool.store(""), pool.host, False)["changed"]


def test_libvirt_looks_at_the_pool_again_when_all_of_it_has_gone(pool, mirror, image):
    pool.stage(digest(image), put(mirror, image))
    seen = []
    pool.host.refresh = lambda *_: seen.append(os.listdir(pool.directory))
    image_stage.remove(pool.store(""), pool.host, False)
    assert seen == [[]]


def test_removal_of_a_used_image_is_refused_or_leaves_it(pool, mirror, image):
    pool.stage(digest(image), put(mirror, image))
    pool.host.users = lambda _: ["domain worker"]
    with pytest.raises(image_stage.Failed, match="in use by domain worker"):
        image_stage.remove(pool.store(""), pool.host, False)
    assert pool.path.exists() and pool.leftovers() == ["json"]
    assert image_stage.remove(pool.store(""), pool.host, True)["left"] == ["domain worker"]
    assert os.listdir(pool.directory) == [NAME]


def test_check_mode_predicts_and_touches_nothing(pool, mirror, image, other):
    assert image_stage.predict(pool.store(digest(image)), pool.host)["changed"]
    assert os.listdir(pool.directory) == []
    pool.stage(digest(image), put(mirror, image))
    assert not image_stage.predict(pool.store(digest(image)), pool.host)["changed"]
    pool.host.users = lambda _: ["domain worker"]
    with pytest.raises(image_stage.Failed, match="in use"):
        image_stage.predict(pool.store(digest(other)), pool.host)
