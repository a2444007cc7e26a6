"""What one client costs the others: slow and silent ones, large images, floods."""

import asyncio
import io
import logging
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from serve_cases import NEEDED, Running, picture, send, write_model
from starlette.exceptions import HTTPException

from skh2edl import load_model
from skh2edl.estimators.model_card import ModelCard
from skh2edl.serve import Limits, create_app, server, service
from skh2edl.serve.guard import Body, ByteBudget
from skh2edl.serve.routes import build
from skh2edl.serve.uploads import Upload

HEAD = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
KIND = (b"content-type", b"multipart/form-data; boundary=x")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("serve") / "colours.safetensors")


def make_service(model, **limits):
    card = ModelCard(needed=NEEDED)
    return service.Service(load_model(model), card, "colours", Limits(**limits))


class FakeTime(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        select = self._selector.select

        def jump(timeout=None):
            self.now += timeout or 0.0
            return select(0)

        self._selector.select = jump

    def time(self):
        return self.now


def in_fake_time(work):
    with asyncio.Runner(loop_factory=FakeTime) as runner:
        return runner.run(work)


def body_of(pieces, limits, budget=None, client="10.0.0.1"):
    """Return a body whose pieces come after some seconds each."""
    waiting = iter(pieces)

    async def receive():
        seconds, n_bytes = next(waiting)
        await asyncio.sleep(seconds)
        return {"type": "http.request", "body": bytes(n_bytes), "more_body": True}

    return Body(receive, client, budget or ByteBudget(10**9), limits)


async def read(body, n_pieces):
    for _ in range(n_pieces):
        await body.receive()


async def request(app, body, path="/api/predict", client="10.0.0.1", headers=(), kind=KIND):
    """Call an application as a server would; the body is a list of bytes, None waits for ever."""
    pieces, sent = list(body), []

    async def receive():
        piece = pieces.pop(0)
        if piece is None:
            await asyncio.Event().wait()
        if piece == "gone":
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def respond(message):
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": path, "query_string": b"",
        "headers": [(b"host", b"localhost"), kind, *headers], "client": (client, 5000),
        "scheme": "http", "server": ("127.0.0.1", 80), "root_path": "", "asgi": {"version": "3.0"},
    }  # fmt: skip
    await app(scope, receive, respond)
    return sent


# Slow ------------------------------------------------------------------------------------------


def test_a_body_that_comes_too_slowly_is_refused():
    limits = Limits(min_kb_per_second=10, patience=10)
    with pytest.raises(HTTPException, match="at least 10 kB must come in a second") as caught:
        in_fake_time(read(body_of([(1, 1)] * 1000, limits), 1000))
    assert caught.value.status_code == 408
    # A million bytes at once are no leave to be silent for a hundred seconds afterwards.
    with pytest.raises(HTTPException, match="it fell 10 seconds behind"):
        in_fake_time(read(body_of([(0, 1_000_000), (11, 1)], limits), 2))


def test_a_slow_link_that_keeps_to_the_rate_may_take_its_time():
    limits = Limits(min_kb_per_second=10, patience=10)
    in_fake_time(read(body_of([(9, 100_000)] * 100, limits), 100))


def test_slow_uploads_hold_no_place(model):
    app = create_app(model)

    async def both():
        slow = [asyncio.create_task(request(app, [HEAD, b"a", None])) for _ in range(40)]
        await asyncio.sleep(0)
        sent = await request(app, [HEAD + picture("red") + b"\r\n--x--\r\n"])
        states = [task.done() for task in slow]
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        return sent, states

    sent, states = asyncio.run(both())
    assert sent[0]["status"] == 200
    assert not any(states)


def test_a_client_that_goes_away_is_no_error_of_the_server(model, caplog):
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(request(create_app(model), [HEAD, b"a", "gone"])) == []
    assert caplog.records == []


# The budget of bytes ---------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 400)), max_size=60),
    st.integers(100, 1000),
)
def test_bodies_stay_in_the_budget_and_leave_room_for_a_newcomer(wanted, size):
    budget, held = ByteBudget(size), []
    for client, n_bytes in wanted:
        if budget.take(client, n_bytes):
            held.append((client, n_bytes))
    total = sum(n_bytes for _, n_bytes in held)
    assert total <= size
    for name in "abcdef":
        assert sum(n for client, n in held if client == name) <= size / 2
    # Half of what is free is there for somebody new, however many have filled the rest.
    room = (size - total) // 2
    if room:
        assert budget.take("new", room)
        budget.give_back("new", room)
    for client, n_bytes in held:
        budget.give_back(client, n_bytes)
    assert budget.take("new", size // 2)


def test_a_body_without_room_waits_and_is_told_to_come_again():
    limits = Limits(patience=10)

    async def wait_in_vain():
        budget = ByteBudget(1000)
        await read(body_of([(0, 500)], limits, budget), 1)
        await read(body_of([(0, 500)], limits, budget), 1)

    with pytest.raises(HTTPException, match="Send this one again in a moment") as caught:
        in_fake_time(wait_in_vain())
    assert caught.value.status_code == 503
    assert caught.value.headers["retry-after"] == "5"

    async def wait_and_get():
        budget = ByteBudget(1000)
        first = body_of([(0, 500)], limits, budget)
        await read(first, 1)
        waiting = asyncio.create_task(read(body_of([(0, 500)], limits, budget), 1))
        await asyncio.sleep(5)
        first.release()
        await waiting

    in_fake_time(wait_and_get())


def test_a_request_gives_its_bytes_back_however_it_ends(model):
    app = create_app(model, limits=Limits(max_upload_mb=0.01, max_reading_mb=0.02))
    whole = HEAD + picture("red") + b"\r\n--x--\r\n"

    async def many():
        for _ in range(20):
            assert (await request(app, [whole]))[0]["status"] == 200
            assert (await request(app, [HEAD, b"--x--\r\n"]))[0]["status"] == 400
            assert await request(app, [HEAD, bytes(5000), "gone"]) == []

    asyncio.run(many())


def test_a_request_with_two_lengths_is_refused(model):
    both = [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")]
    for path in ("/api/predict", "/api/fuse"):
        sent = asyncio.run(request(create_app(model), [b"hello"], path, headers=both))
        assert sent[0]["status"] == 400
        assert (b"connection", b"close") in sent[0]["headers"]
        assert b"both Content-Length and Transfer-Encoding" in sent[1]["body"]


# Pixels ----------------------------------------------------------------------------------------


def test_the_images_of_a_request_share_a_budget_of_pixels(model):
    served = make_service(model, max_request_pixels=3 * 40 * 40)
    uploads = [Upload(f"{n}.png", picture("red", n)) for n in range(5)]
    uploads.insert(1, Upload("text", b"no image"))
    pictures = asyncio.run(served.prepare(uploads))
    assert [each.pixels is not None for each in pictures] == [True, False, True, True, False, False]
    assert pictures[1].error.startswith("'text' cannot be used as an image")
    assert "'3.png' is one too many" in pictures[4].error
    predictions = asyncio.run(served.predict(pictures, None, "10.0.0.1"))
    assert [each.error is None for each in predictions] == [each.error is None for each in pictures]


def test_images_are_decoded_while_the_model_is_at_work(model):
    served, free = make_service(model), threading.Event()

    async def both():
        long = asyncio.create_task(service._in_thread(lambda: free.wait(60), served._predicting))
        (made,) = await served.prepare([Upload("a.png", picture("red"))])
        assert not long.done()
        waiting = asyncio.create_task(served.predict([made], None, "10.0.0.1"))
        free.set()
        assert await long
        return made, await waiting

    made, (prediction,) = asyncio.run(both())
    assert made.pixels.shape == (32, 32, 3)
    assert prediction.error is None


def test_a_large_image_keeps_other_large_ones_waiting_but_no_small_one(model, monkeypatch):
    served = make_service(model)
    monkeypatch.setattr(service, "_LARGE", 1000)
    make, free, running, most = service.make_picture, threading.Event(), [], []

    def slow_if_large(upload, *arguments):
        if upload.name == "large":
            running.append(upload)
            most.append(len(running))
            assert free.wait(60)
            running.pop()
        return make(upload, *arguments)

    monkeypatch.setattr(service, "make_picture", slow_if_large)
    large = Upload("large", picture("red"))
    monkeypatch.setattr(
        service, "declared_pixels", lambda upload: 1600 if upload.name == "large" else 100
    )

    async def all_of_them():
        waiting = [asyncio.create_task(served.prepare([large])) for _ in range(8)]
        while not running:
            await asyncio.sleep(0.001)
        (small,) = await served.prepare([Upload("small", picture("green"))])
        assert small.pixels is not None
        assert not any(task.done() for task in waiting)
        free.set()
        await asyncio.gather(*waiting)

    asyncio.run(all_of_them())
    assert most == [1] * 8


def test_a_request_without_images_is_small(model):
    app = create_app(model)
    kind = (b"content-type", b"application/json")
    told = [(b"content-length", b"60000000")]
    for body, headers in (([b"[]," * 10_000] * 2000, ()), ([None], told)):
        sent = asyncio.run(request(app, body, "/api/fuse", headers=headers, kind=kind))
        assert sent[0]["status"] == 413
        assert b"at most 0.1 MB" in sent[1]["body"]


def scans(n):
    """A JPEG of 3 x 3 blocks with n scans that change nothing."""

    def part(mark, content):
        return bytes([0xFF, mark]) + (len(content) + 2).to_bytes(2, "big") + content

    def scan(first, last, bits):
        return part(0xDA, bytes([1, 1, 0, first, last, 0])) + bits

    # Huffman tables of one code of one bit: no difference, and "the next blocks are empty".
    head = part(0xDB, bytes([0]) + bytes([1] * 64))
    head += part(0xC2, bytes([8, 0, 24, 0, 24, 1, 1, 0x11, 0]))
    head += part(0xC4, bytes([0, 1, *[0] * 16])) + part(0xC4, bytes([0x10, 1, *[0] * 15, 0x30]))
    again = scan(1, 63, bytes([0b00010111]))  # a run of 8 + 1 blocks, filled up with ones
    return b"\xff\xd8" + head + scan(0, 0, bytes([0, 0x7F])) + again * (n - 1) + b"\xff\xd9"


def saved(kind, **options):
    file = io.BytesIO()
    Image.linear_gradient("L").save(file, kind, **options)
    return file.getvalue()


def run_lengths():
    """A BMP file of 64 x 64 pixels in runs, which Pillow decodes in Python."""
    header = bytearray(saved("BMP")[: 54 + 1024])
    for place, value in ((2, 8 * 4096), (18, 64), (22, 64), (30, 1), (34, 2 * 4096)):
        header[place : place + 4] = value.to_bytes(4, "little")
    return bytes(header) + (b"\x01\x00" * 64 + b"\0\0") * 64


@pytest.mark.parametrize(
    ("content", "is_taken"),
    [
        (saved("JPEG", progressive=True), True),
        (saved("BMP"), True),
        (scans(100), True),
        (scans(101), False),
        (run_lengths(), False),
        (saved("PPM"), False),
        (saved("JPEG2000"), False),
    ],
)
def test_an_image_made_to_take_minutes_is_refused(model, content, is_taken):
    with Image.open(io.BytesIO(content)) as image:
        image.load()  # whole: it is refused for the work that it makes
    (made,) = asyncio.run(make_service(model).prepare([Upload("a", content)]))
    assert (made.pixels is not None) == is_taken
    if not is_taken:
        assert "takes too long to decode" in made.error


def test_the_requests_of_a_client_wait_for_each_other_and_for_no_one_else(model):
    served, running, done = make_service(model), [], []

    async def slow_prepare(uploads):
        running.append(uploads[0].name)
        most = sum(name == "mine" for name in running)
        assert most <= 1
        while uploads[0].name == "mine" and not done:
            await asyncio.sleep(0.001)
        running.remove(uploads[0].name)
        return await type(served).prepare(served, uploads)

    served.prepare = slow_prepare
    app = build(served, ("localhost",))

    async def all_of_them():
        form = [HEAD.replace(b'"a"', b'"mine"') + picture("red") + b"\r\n--x--\r\n"]
        mine = [asyncio.create_task(request(app, form)) for _ in range(5)]
        await asyncio.sleep(0.01)
        other = [HEAD + picture("red") + b"\r\n--x--\r\n"]
        sent = await asyncio.wait_for(request(app, other, client="10.0.0.2"), 60)
        assert sent[0]["status"] == 200
        assert not any(task.done() for task in mine)
        done.append(True)
        return await asyncio.gather(*mine)

    assert [sent[0]["status"] for sent in asyncio.run(all_of_them())] == [200] * 5


# Connections -----------------------------------------------------------------------------------


def is_closed(connection):
    """Wait for the other side to close."""
    connection.settimeout(60)
    return connection.recv(1) == b""


def connect(url):
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    return socket.create_connection((host, int(port)))


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "],
    ids=["silent", "first line", "half a header"],
)
def test_a_connection_without_a_request_is_closed(model, monkeypatch, said):
    monkeypatch.setattr(server.ImpatientProtocol, "patience", 0.1)
    with Running(create_app(model)) as url, connect(url) as connection:
        connection.sendall(said)
        assert is_closed(connection)


def test_a_second_request_must_be_whole_too(model, monkeypatch):
    monkeypatch.setattr(server.ImpatientProtocol, "patience", 0.5)
    with Running(create_app(model)) as url, connect(url) as connection:
        connection.settimeout(60)
        connection.sendall(b"GET /static/icon.svg HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET / HTTP/1.1\r\n")
        while connection.recv(65536):
            pass


def test_silent_connections_make_room_for_new_ones(model, monkeypatch):
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 3)
    monkeypatch.setattr(server, "_MAX_REQUESTS", 10)
    with Running(create_app(model)) as url:
        silent = [connect(url) for _ in range(30)]
        try:
            assert send(url, picture("red"))["error"] is None
            assert all(is_closed(connection) for connection in silent[:-3])
        finally:
            for connection in silent:
                connection.close()


# Floods ----------------------------------------------------------------------------------------


def test_a_flood_of_one_client_evicts_no_prediction_of_another(model):
    served = make_service(model, max_kept_mb=0.05)
    app = build(served, ["localhost"])
    whole = HEAD + picture("red") + b"\r\n--x--\r\n"

    async def flood():
        await request(app, [whole], client="10.0.0.1")
        (mine,) = served.store._kept
        await request(app, [whole], client="2001:db8::1")
        theirs = [key for key in served.store._kept if key != mine]
        for number in range(60):
            # All of one network, which one customer has.
            await request(app, [whole], client=f"2001:db8::{number:x}")
        return mine, theirs

    mine, (theirs,) = asyncio.run(flood())
    assert served.store.get(mine) is not None
    assert served.store.get(theirs) is None
    assert {client for client, _ in served.store._kept.values()} == {"10.0.0.1", "2001:db8::/64"}
