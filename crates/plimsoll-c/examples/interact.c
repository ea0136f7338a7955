// The object around a voxel of an image in memory: interact MODEL IMAGE DEPTH HEIGHT WIDTH LABELS POINT_DEPTH POINT_HEIGHT POINT_WIDTH
// IMAGE has the voxels as floats, and nothing else; LABELS is written with a byte for each voxel: 1 for the object.
#include <stdio.h>
#include <stdlib.h>
#include "plimsoll.h"

static int fail(const PlimsollSession *session) {
    char text[1024];
    plimsoll_session_error(session, text, sizeof text);
    fprintf(stderr, "error: %s\n", text);
    return 1;
}

int main(int count, char **arguments) {
    if (count != 10) return 2;
    PlimsollOptions options = plimsoll_usual_options();
    options.ram_bytes = 1u << 30;
    PlimsollSession *session;
    if (plimsoll_session_open(arguments[1], &options, &session)) return fail(session);
    uint64_t shape[3], voxels = 1;
    int64_t point[3];
    for (int axis = 0; axis < 3; axis++) {
        voxels *= shape[axis] = strtoull(arguments[3 + axis], NULL, 10);
        point[axis] = strtoll(arguments[7 + axis], NULL, 10);
    }
    float *image = malloc(voxels * sizeof *image);
    unsigned char *labels = malloc(voxels);
    FILE *file = fopen(arguments[2], "rb");
    if (!image || !labels || !file || fread(image, sizeof *image, voxels, file) != voxels) return 3;
    if (plimsoll_session_set_image(session, image, voxels * sizeof *image, PLIMSOLL_F32, shape)) return fail(session);
    PlimsollBox changed;
    if (plimsoll_session_add_point(session, point, 1) || plimsoll_session_predict(session, &changed)) return fail(session);
    printf("changed from plane %lld to %lld\n", (long long)changed.start[0], (long long)changed.end[0] - 1);
    if (plimsoll_session_segmentation(session, labels, voxels)) return fail(session);
    file = freopen(arguments[6], "wb", file);
    if (!file || fwrite(labels, 1, voxels, file) != voxels || fclose(file)) return 4;
    plimsoll_session_free(session);
    free(labels);
    free(image);
    return 0;
}
