"""A Zenoh router in a process of its own: a session of its package in the mode `router`, as `zenohd` opens one.

    router.py CONFIG

It ends with its standard input."""

import sys

import zenoh


def main():
    zenoh.init_log_from_env_or("warn")
    session = zenoh.open(zenoh.Config.from_file(sys.argv[1]))
    sys.stdin.read()
    session.close()


if __name__ == "__main__":
    main()
