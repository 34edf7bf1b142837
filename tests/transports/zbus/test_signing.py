"""Signatures: what clients of both generations made of the same messages, and forgeries."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from embedq_transports.zbus.headers import read_headers
from embedq_transports.zbus.limits import ZBUS_LIMITS
from embedq_transports.zbus.requests import message_of_json, message_of_request
from embedq_transports.zbus.signing import candidates, proof
from tests.transports.zbus.vectors import API_KEY, SECRET

A = '{"headers":{"cmd":"pub","mq":"MyMQ","id":"11111111-1111-4111-8111-111111111111"},"body":"hello"}'  # noqa: E501
B = '{"headers":{"cmd":"create","mq":"MyMQ","channel":"MyChannel","id":"22222222-2222-4222-8222-222222222222"}}'  # noqa: E501
C = r'{"headers":{"cmd":"pub","mq":"MyMQ","id":"33333333-3333-4333-8333-333333333333"},"body":{"b":[1,2.5,true,null],"a":{"z":1,"y":"/\"\\\n"}}}'  # noqa: E501
D = '{"headers":{"cmd":"pub","mq":"MyMQ","id":"44444444-4444-4444-8444-444444444444"},"body":"hé你😀!"}'  # noqa: E501
E = '{"headers":{"cmd":"sub","mq":"MyMQ","channel":"MyChannel","window":2,"ack":false,"id":"55555555-5555-4555-8555-555555555555"}}'  # noqa: E501
F = '{"url":"/example/plus","method":"POST","headers":{"cmd":"pub","mq":"MyRpc","ack":"false","id":"66666666-6666-4666-8666-666666666666"},"body":[1,2]}'  # noqa: E501
G = '{"headers":{"cmd":"create","mq":"MyMQ","mqType":null,"mqMask":1,"id":"77777777-7777-4777-8777-777777777777"},"body":null}'  # noqa: E501
ALL = "url,method,body,h.*"

#: Message, signFields (None: the header is absent), signature; the producers are in the id.
SIGNED = {
    "A of all of 2018": (
        A,
        None,
        "463492ee795dbce17503644e1a27c368fb2c05daa59f944135794a20c4103181",
    ),
    "B of all of 2018": (
        B,
        None,
        "0a872e83477650382b0babd1229a6c5959c28ec75e607e3551022832e28db7c7",
    ),
    "C of all of 2018": (
        C,
        None,
        "867d7be181de7cb5654230f8680e2a33d756370fab446a332c8a8fa301e5fca4",
    ),
    "D of Python 2018": (
        D,
        None,
        "66c3c283c3ac06a8903931e698d9713d1b1815c608e916a9fbbcb911be08625c",
    ),
    "D of JS and Java": (
        D,
        None,
        "34b2bafb1d258ed1f1d409c4f3cf26765199dec5a3feca94b7ec2149fe27c9d6",
    ),
    "E of Python, JS": (
        E,
        None,
        "37a6cd3e841b124a06d4488c06fd818f1cae9f49cd678036e3b99ee1369034b4",
    ),
    "E of Java 2018": (
        E,
        None,
        "50cf4bd075b3ac7f27635575a6c3569a52f7da815b95b6693cf404802523515b",
    ),
    "F of all of 2018": (
        F,
        None,
        "616903bd0e05759aa1f34e13f8e9230ae38d5202b0defb490eb4a80be4a0a971",
    ),
    "G of Python, JS": (
        G,
        None,
        "27407fe0d944694d4b186ca1f9d0ad80d50e731d03916315854be603f4911b0b",
    ),
    "G of Java 2018": (
        G,
        None,
        "be57b42181b6115b99bf385965c8d12470d513729170d77bde6e1d92dcccd5b3",
    ),
    "A body": (A, "body", "d5abc49563ec15b5ccdaebf09d19da76bf83282008355778ffb0dd2dbcff4021"),
    "A headers": (A, "h.*", "740985069a874a16f0bf1573fe8ee4ecc4a9712b9e9950574bd88986863c9d53"),
    "A all": (A, ALL, "70d104bee75a921153fdbe2c1924c8270a7a4dce995f0f332308520ba76ae908"),
    "B all": (B, ALL, "9195e68d6220b130d2d334576f57d616ab8e96842d7d972aaf2c713e806ec26a"),
    "C all": (C, ALL, "50149921935cdf43370184daa62b747a53df94ef567e3251ab739c23c9a30296"),
    "D body, Python": (
        D,
        "body",
        "978c1145faacaf7f0b316cb0bf1902a598f31053492023f860e221feca747082",
    ),
    "D body, JS, Java": (
        D,
        "body",
        "97ca484e81d163d24aa30491abc7252764fb4f8ae626f5dcfabeb5b9a772f0cd",
    ),
    "E headers": (E, "h.*", "c68ef065c43708842250eded2bb259a78082155962d5ee7bf702e0c1addd990f"),
    "F all": (F, ALL, "2dde9b35883e1105f820f5f56ecf30d1228f4129210058a060e2768e8eb74ea4"),
    "G headers": (G, "h.*", "c7685b88a658e87094a4c3faf2dcfbff3b91e822691a9bda3451d0d6bdd2c0a4"),
    "G headers, Java": (
        G,
        "h.*",
        "0dd82a2e4a9503438f757437797d7097c2aa7a6bea2fcba93b9e7724db76f36f",
    ),
}
CONSTANT = {
    None: "746cc808b618b4bc0ad9f1438ffcdd4dba87cc3cd47f0a62fdd4cb21b865b5e0",
    "": "2f6dc4f4f289b6cb92aef5b776f8d77f49720ca4aa89a588dde6a2c190208c2d",
}


def signed(text: str, fields: str | None, signature: str, **headers: object):
    """Return a message as a client sends it, signed."""
    # Numbers stay as they are written: json reads and writes them alike here.
    found = json.loads(text)
    found["headers"] |= {"apiKey": API_KEY, "signature": signature, **headers}
    if fields is not None:
        found["headers"]["signFields"] = fields
    return message_of_json(json.dumps(found).encode(), keep_raw=True)


@pytest.mark.parametrize("case", SIGNED)
def test_a_signature_of_a_real_client_is_that_of_its_message(case):
    message = signed(*SIGNED[case])
    assert proof(message, constant=False)(SECRET.encode())


@pytest.mark.parametrize("case", SIGNED)
def test_a_signature_counts_in_upper_case_as_the_document_says(case):
    text, fields, signature = SIGNED[case]
    assert proof(signed(text, fields, signature.upper()), constant=False)(SECRET.encode())


@pytest.mark.parametrize("case", SIGNED)
def test_another_secret_proves_nothing(case):
    assert not proof(signed(*SIGNED[case]), constant=True)(SECRET.encode() + b"x")


@pytest.mark.parametrize("case", [each for each in SIGNED if "headers" in each or "2018" in each])
def test_a_header_that_is_changed_breaks_the_signature(case):
    text, fields, signature = SIGNED[case]
    assert not proof(signed(text, fields, signature, mq="Other"), constant=True)(SECRET.encode())


@pytest.mark.parametrize("case", ["A of all of 2018", "A body", "A all"])
def test_a_body_that_is_changed_breaks_the_signature(case):
    text, fields, signature = SIGNED[case]
    forged = text.replace("hello", "hullo")
    assert not proof(signed(forged, fields, signature), constant=True)(SECRET.encode())


@pytest.mark.parametrize("fields", CONSTANT)
@pytest.mark.parametrize("text", [A, B, D, G])
def test_a_signature_of_nothing_counts_only_where_it_is_allowed(text, fields):
    message = signed(text, fields, CONSTANT[fields])
    assert proof(message, constant=True)(SECRET.encode())
    assert not proof(message, constant=False)(SECRET.encode())


def test_numbers_are_signed_as_they_were_written():
    raw = (
        '{"body":{"a":1.0,"b":1e+20,"c":1E2},"headers":{"apiKey":"K","cmd":"pub",'
        '"signFields":"body"}}'
    )
    message = message_of_json(raw.encode(), keep_raw=True)
    wanted = '{"body":{"a":1.0,"b":1e+20,"c":1E2},"headers":{"apiKey":"K","signFields":"body"}}'
    assert wanted in list(candidates(message, constant=False))


def test_java_escapes_control_characters_in_upper_case_and_more_of_them():
    raw = '{"body":"\\u001b\\u007f\\u2028\\n","headers":{"apiKey":"K","signFields":"body"}}'
    texts = list(candidates(message_of_json(raw.encode(), keep_raw=True), constant=False))
    assert any('"\\u001B\\u007F\\u2028\\n"' in text for text in texts)
    assert any('"\\u001b\x7f\u2028\\n"' in text for text in texts)


def test_blanks_between_fields_are_none():
    raw = '{"headers":{"apiKey":"K","cmd":"pub","mq":"M","signFields":"h.cmd, h.mq"}}'
    texts = list(candidates(message_of_json(raw.encode(), keep_raw=True), constant=False))
    wanted = '{"headers":{"apiKey":"K","cmd":"pub","mq":"M","signFields":"h.cmd, h.mq"}}'
    assert wanted in texts


def test_a_request_over_http_is_signed_without_what_its_library_adds():
    headers = [(b"Host", b"x"), (b"cmd", b"pub"), (b"mq", b"M"), (b"apiKey", b"K")]
    headers += [(b"signFields", b"h.*,body"), (b"Content-Length", b"7")]
    headers += [(b"Content-Type", b"application/json"), (b"signature", b"00")]
    message = message_of_request("POST", b"/", *read_headers(headers), b'{"a":1}', ZBUS_LIMITS)
    texts = list(candidates(message, constant=False))
    wanted = (
        '{"body":{"a":1},"headers":{"Content-Type":"application/json","apiKey":"K","cmd":"pub",'
        '"mq":"M","signFields":"h.*,body"}}'
    )
    assert wanted in texts


def test_a_name_that_is_added_in_another_case_breaks_the_signature():
    text = '{"headers":{"apiKey":"K","signFields":"h.mq"%s}}'
    secret = b"secret"
    wanted = text % ',"mq":"mine"'
    signature = hmac.new(secret, b'{"headers":{"apiKey":"K","mq":"mine","signFields":"h.mq"}}',
                         hashlib.sha256).hexdigest()  # fmt: skip
    for added, proves in [("", True), (',"MQ":"mine"', True), (',"MQ":"other"', False)]:
        signed_text = wanted[:-2] + f',"signature":"{signature}"' + added + "}}"
        message = message_of_json(signed_text.encode(), keep_raw=True)
        assert proof(message, constant=False)(secret) is proves


def test_what_is_called_over_http_has_to_be_signed():
    def texts(*headers: tuple[bytes, bytes]) -> list[str]:
        headers = ((b"apiKey", b"K"), (b"signature", b"00"), *headers)
        message = message_of_request("GET", b"/svc", *read_headers(headers), b"", ZBUS_LIMITS)
        return list(candidates(message, constant=False))

    assert '{"headers":{"apiKey":"K","cmd":"pub"}}' in texts((b"cmd", b"pub"))
    assert all('"url":"/svc"' in text for text in texts())


def test_json_too_deep_to_be_read_proves_nothing():
    deep = b'{"headers":{"apiKey":"K"},"body":' + b"[" * 900 + b"]" * 900 + b"}"
    message = message_of_json(deep, keep_raw=True)
    assert not proof(message, constant=False)(b"secret")


def test_the_candidates_are_a_handful():
    for text, fields, signature in SIGNED.values():
        assert len(list(candidates(signed(text, fields, signature), constant=True))) <= 40
