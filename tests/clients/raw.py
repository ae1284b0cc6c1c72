"""MQTT packets as bytes, right and wrong, and sockets that speak them."""

import socket
import ssl
import struct
import time

from model import DEADLINE

CONNACK, PUBLISH, PUBACK, SUBACK, PINGRESP, DISCONNECT = 2, 3, 4, 9, 13, 14


def varint(value):
    out = bytearray()
    while True:
        value, digit = divmod(value, 128)
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("!H", len(data)) + data


def packet(first, body=b""):
    return bytes([first]) + varint(len(body)) + body


def connect(client_id="", version=5, flags=0x02, keepalive=0, properties=b"", payload=b"", name="MQTT"):
    """A CONNECT; `payload` follows the client id (will, user name, password)."""
    body = string(name) + bytes([version, flags]) + struct.pack("!H", keepalive)
    if version >= 5:
        body += varint(len(properties)) + properties
    return packet(0x10, body + string(client_id) + payload)


def publish(topic, payload=b"", qos=0, mid=1, properties=b"", version=5, flags=None):
    body = string(topic)
    if qos:
        body += struct.pack("!H", mid)
    if version >= 5:
        body += varint(len(properties)) + properties
    return packet(0x30 | (qos << 1 if flags is None else flags), body + payload)


def subscribe(*filters, mid=1, options=0, properties=b"", version=5, first=0x82):
    body = struct.pack("!H", mid)
    if version >= 5:
        body += varint(len(properties)) + properties
    return packet(first, body + b"".join(string(name) + bytes([options]) for name in filters))


class Connection:
    """A blocking TCP or TLS connection that reads whole packets."""

    def __init__(self, address, source=None, receive_buffer=None, tls=False):
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source is not None:
            self.socket.bind((source, 0))
        self.socket.settimeout(DEADLINE)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self._buffer = b""

    def send(self, data):
        """Sends; that the other side has closed meanwhile is found out by reading."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def read(self):
        """The next packet as (type, flags, body), or None at the end of the connection."""
        while True:
            found = split(self._buffer)
            if found:
                kind, flags, body, self._buffer = found
                return kind, flags, body
            try:
                chunk = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            self._buffer += chunk

    def read_to_end(self):
        """All packets until the connection ends."""
        packets = []
        end = time.monotonic() + DEADLINE
        while (found := self.read()) is not None:
            packets.append(found)
            assert time.monotonic() < end, f"the connection did not end; got {packets[:5]}"
        return packets

    def connect(self, client_id="", version=5, **arguments):
        """Sends CONNECT and takes the CONNACK, which must accept."""
        self.send(connect(client_id, version, **arguments))
        kind, _, body = self.read()
        assert kind == CONNACK and body[1] == 0, (kind, body)
        return body

    def close(self):
        self.socket.close()

    def reset(self):
        """Closes with RST, as a host does that has lost its state."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def split(buffer):
    """(type, flags, body, rest) of the first packet in `buffer`, or None if it is not whole."""
    length, shift = 0, 0
    for at in range(1, min(len(buffer), 5)):
        length |= (buffer[at] & 127) << shift
        shift += 7
        if buffer[at] < 128:
            end = at + 1 + length
            if len(buffer) < end:
                return None
            return buffer[0] >> 4, buffer[0] & 15, buffer[at + 1:end], buffer[end:]
    return None
