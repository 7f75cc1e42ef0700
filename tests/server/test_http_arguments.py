"""What `serve --http` takes, and what it refuses before anything listens."""

import argparse
from pathlib import Path

import pytest

from tritonforge.server.cli import MISUSE, run
from tritonforge.server.http_arguments import Endpoint, Unusable, add_http, endpoint

TOKEN = "0123456789abcdef-._~+/="


def given(*words: str) -> Endpoint | None:
    parser = argparse.ArgumentParser()
    add_http(parser)
    return endpoint(parser.parse_args(words))


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return str(file)


def test_it_is_asked_for_and_then_serves_this_machine_only() -> None:
    assert given() is None
    assert given("--http") == Endpoint("127.0.0.1", 8000, "/mcp", None)


def test_another_machine_is_served_for_a_token(token_file: str) -> None:
    words = ["--http", "--host", "0.0.0.0", "--port", "0", "--path", "/tools/mcp", "--token-file", token_file]
    assert given(*words) == Endpoint("0.0.0.0", 0, "/tools/mcp", TOKEN)
    assert given("--http", "--path", "/..a/.b/c...") == Endpoint("127.0.0.1", 8000, "/..a/.b/c...", None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "gpu.example", "127.0.0.2", "localhost.example"])
def test_no_other_machine_is_served_without_one(host: str) -> None:
    with pytest.raises(Unusable, match=r"--token-file FILE too, or listen on 127\.0\.0\.1"):
        given("--http", "--host", host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_local_host_needs_none_and_may_have_one(host: str, token_file: str) -> None:
    open_one, closed_one = given("--http", "--host", host), given("--http", "--host", host, "--token-file", token_file)
    assert open_one is not None
    assert closed_one is not None
    assert (open_one.token, closed_one.token) == (None, TOKEN)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--port", "8001"], "--port: only with --http"),
        (["--token-file", "t", "--host", "::1"], "--host, --token-file: only with --http"),
        (["--http", "--path", "mcp"], "no path like /mcp"),
        (["--http", "--path", "/"], "no path like /mcp"),
        (["--http", "--path", "/{name}"], "no path like /mcp"),
        (["--http", "--path", "/../x"], "no path like /mcp"),
        (["--http", "--path", "/a/.."], "no path like /mcp"),
        (["--http", "--path", "/./a"], "no path like /mcp"),
        (["--http", "--path", "//a"], "no path like /mcp"),
        (["--http", "--path", "/a/"], "no path like /mcp"),
        (["--http", "--token-file", "not-there"], "can't be read: No such file"),
        (["--http", "--token-file", "."], "can't be read: Is a directory"),
    ],
)
def test_what_makes_no_sense_is_misuse(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", *words]) == MISUSE
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_is_a_number(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["serve", "--http", "--port", port])
    assert "whole number from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "\n", "short", "two words of enough length", f"{TOKEN}\n{TOKEN}", f"{TOKEN}ü"])
def test_a_token_that_cannot_be_sent_or_is_guessed_is_misuse(text: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Unusable, match="token-file"):
        given("--http", "--token-file", str(file))
