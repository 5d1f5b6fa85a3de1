/* A wait and a sync in one call: a thread of Python would need the interpreter between the two. */

#include <errno.h>
#include <unistd.h>

/* Waits for a descriptor in a pipe, and makes the data of its file durable. Returns 0, the error's number, or -1 if the
 * pipe has ended or a descriptor below 0 was in it. */
int64_t litelog_await_and_sync(int64_t pipe)
{
    int32_t descriptor = -1;
    ssize_t count;
    do
        count = read((int)pipe, &descriptor, sizeof descriptor);
    while (count < 0 && errno == EINTR);
    if (count != (ssize_t)sizeof descriptor || descriptor < 0)
        return -1;
    while (fdatasync(descriptor) != 0)
        if (errno != EINTR)
            return errno;
    return 0;
}
