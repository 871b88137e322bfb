"""TLS in front of a server that has none: a certificate of nobody's authority, and a proxy that shows it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    file: Path
    key: Path


def self_signed(folder: Path) -> Certificate:
    """Make a certificate for 127.0.0.1 that nobody else vouches for: ``localhost`` is two addresses, and an error names one."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    made.file.write_bytes(signed.public_bytes(pem))
    made.key.write_bytes(private)
    return made


@contextmanager
def tls_proxy(certificate: Certificate, port: int) -> Iterator[int]:
    """Speak TLS at a free port of this machine, and pass on what comes to another port; that free port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    context.set_alpn_protocols(["h2"])
    loop = asyncio.new_event_loop()
    serving = asyncio.start_server(partial(_pass_on, port), "127.0.0.1", 0, ssl=context)
    server = loop.run_until_complete(serving)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _pass_on(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
    try:
        await asyncio.gather(_pump(reader, to_server), _pump(from_server, writer))
    finally:
        to_server.transport.abort()
        writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, ssl.SSLError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for _ in range(3):  # transports close one step after another
        await asyncio.sleep(0)
