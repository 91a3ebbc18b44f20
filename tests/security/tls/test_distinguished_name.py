"""Subjects of certificates in the form of Java's X500Principal."""

import pytest

from kledger.security.tls.distinguished_name import InvalidCertificate, subject_of

SEQUENCE, SET, UTF8, PRINTABLE, IA5, BMP = 0x30, 0x31, 0x0C, 0x13, 0x16, 0x1E
CN, ORGANIZATION, EMAIL = "550403", "55040a", "2a864886f70d010901"


def der(tag: int, *content: bytes) -> bytes:
    data = b"".join(content)
    if len(data) < 0x80:
        return bytes([tag, len(data)]) + data
    size = len(data).to_bytes(3, "big")
    return bytes([tag, 0x83]) + size + data


def attribute(kind: str, text: bytes, tag: int = UTF8) -> bytes:
    return der(SEQUENCE, der(0x06, bytes.fromhex(kind)), der(tag, text))


def certificate(*names: bytes, tags: int = SET) -> bytes:
    subject = der(SEQUENCE, *(der(tags, name) for name in names))
    signed = der(
        SEQUENCE,
        der(0xA0, der(0x02, b"\2")),
        der(0x02, b"\1"),
        der(SEQUENCE),
        der(SEQUENCE),
        der(SEQUENCE),
        subject,
        der(SEQUENCE),
    )
    return der(SEQUENCE, signed, der(SEQUENCE), der(0x03, b"\0"))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([attribute(ORGANIZATION, b"x"), attribute(CN, b"app")], "CN=app,O=x"),
        ([attribute(CN, b"a") + attribute(ORGANIZATION, b"b")], "CN=a+O=b"),
        ([attribute(CN, b'a,b+c="d"')], 'CN=a\\,b\\+c\\=\\"d\\"'),
        ([attribute(CN, b" a b ")], "CN=\\ a b\\ "),
        ([attribute(CN, b"#a\0b")], "CN=\\#a\\00b"),
        ([attribute(CN, "jürgen".encode())], "CN=jürgen"),
        ([attribute(CN, "ü".encode("utf-16-be"), BMP)], "CN=ü"),
        (
            [attribute(EMAIL, b"a@b", IA5), attribute(CN, b"c", PRINTABLE)],
            "CN=c,1.2.840.113549.1.9.1=#1603614062",
        ),
        ([attribute("55042d", b"x")], "2.5.4.45=#0c0178"),
        ([attribute(CN, b"\1", 0x03)], "CN=#030101"),
        ([], ""),
    ],
)
def test_names_are_written_last_first(names: list[bytes], expected: str) -> None:
    assert expected == subject_of(certificate(*names))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x30",
        b"\x30\x05\1",
        b"\x30\x85\0\0\0\0\1",
        certificate(attribute(CN, b"\xff")),
        certificate(attribute(CN, b"a"), tags=SEQUENCE),
        certificate(der(SEQUENCE, der(0x06, b""), der(UTF8, b"a"))),
        certificate(der(SEQUENCE, der(UTF8, b"a"))),
        certificate(attribute(CN, b"a" * 5_000)),
        der(SEQUENCE, der(SEQUENCE, der(0x02, b"\1"))),
    ],
)
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidCertificate):
        subject_of(data)


def test_every_cut_certificate_is_refused() -> None:
    whole = certificate(attribute(ORGANIZATION, b"x"), attribute(CN, b"app"))
    for size in range(len(whole)):
        with pytest.raises(InvalidCertificate):
            subject_of(whole[:size])
