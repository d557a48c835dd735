"""Pylos in the browser: `pylos-web` serves a page on this machine.

messages      what goes over the socket, both ways: see docs/protocol.md
levels        who can be played against, by id
thinking      searches off the event loop: bounded, clamped, cancellable
analysis      hints, evaluations and the exact truth
table         one game: seats, moves, undo, result
sessions      games that outlive a connection: tokens, spectators, limits
connection    one socket: what it may send, what it is answered
security      who may connect, and what a page may load
server        the application
cli           the command
static        the page itself; board3d is the source of its 3D board
"""
