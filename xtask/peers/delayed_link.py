"""A cable with a rate and a delay between two network namespaces, for kernels without netem.

  delayed_link.py NAME_A NAME_B BYTES_PER_SECOND DELAY_SECONDS

Makes two tunnel devices of these names, prints "ready", and carries packets between them until its input ends; the caller moves
the devices into their namespaces. Each direction sends one packet after another at the rate, and delivers it after the delay.
"""
import collections
import fcntl
import os
import struct
import sys
import threading
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MOST_WAITING = 4 << 20  # bytes; beyond that packets are lost, as in any router


def tunnel(name):
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def carry(source, target, rate, delay):
    waiting, arrived = collections.deque(), threading.Condition()
    held = [0]

    def take():
        free = 0.0
        while packet := os.read(source, 1 << 17):
            now = time.perf_counter()
            with arrived:
                if held[0] + len(packet) > MOST_WAITING:
                    continue
                free = max(free, now) + len(packet) / rate
                held[0] += len(packet)
                waiting.append((free + delay, packet))
                arrived.notify()

    def give():
        while True:
            with arrived:
                while not waiting:
                    arrived.wait()
                at, packet = waiting.popleft()
                held[0] -= len(packet)
            left = at - time.perf_counter()
            if left > 0:
                time.sleep(left)
            try:
                os.write(target, packet)
            except OSError:
                pass  # the other end is not up

    for work in (take, give):
        threading.Thread(target=work, daemon=True).start()


a, b = tunnel(sys.argv[1]), tunnel(sys.argv[2])
rate, delay = float(sys.argv[3]), float(sys.argv[4])
carry(a, b, rate, delay)
carry(b, a, rate, delay)
print("ready", flush=True)
sys.stdin.read()
