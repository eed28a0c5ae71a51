# SPDX-License-Identifier: Apache-2.0
"""gyre._waiting: `await request` in asyncio. For each communicator with waiting tasks, the event loop watches
the descriptor of gyre_comm_fd; it sleeps on it when gyre_comm_arm says that it may."""
import asyncio

_watches = {}  # (loop, Comm by id): _Watch; present while a task waits


class _Watch:
    def __init__(self, loop, comm):
        self.loop, self.comm, self.fd, self.waiting = loop, comm, comm.fileno(), []
        loop.add_reader(self.fd, self.step)

    def add(self, request):
        """The future that has the result of the request."""
        future = self.loop.create_future()
        self.waiting.append((request, future))
        future.add_done_callback(self.drop)
        self.loop.call_soon(self.step)
        return future

    def step(self):
        """Ends the tasks whose requests have finished, and prepares the next sleep."""
        for request, future in self.waiting:
            try:
                if not future.done() and request.test():
                    future.set_result(None)
            except Exception as error:  # pylint: disable=broad-except
                future.set_exception(error)
        if all(future.done() for _, future in self.waiting):
            return
        try:
            ready = not self.comm.arm()
        except Exception:  # pylint: disable=broad-except
            ready = True  # the communicator is dead: the requests have the error
        if ready:
            self.loop.call_soon(self.step)

    def drop(self, done):
        """A task has its result, or was cancelled: then the operation goes on."""
        self.waiting = [(request, future) for request, future in self.waiting if future is not done]
        if not self.waiting:
            self.loop.remove_reader(self.fd)
            _watches.pop((self.loop, id(self.comm)), None)


def wait_in_asyncio(request):
    """Request.__await__"""
    if request.makes:  # a thread of Gyre makes it; no descriptor reports that
        while not request.test():
            yield from asyncio.sleep(0.001).__await__()
        return request.wait()
    if request.test():
        return None
    loop = asyncio.get_running_loop()
    key = loop, id(request.comm)
    if key not in _watches:
        _watches[key] = _Watch(loop, request.comm)
    yield from _watches[key].add(request)
    return None
