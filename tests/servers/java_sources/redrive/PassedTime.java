package redrive;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;

/** What the classes of ElasticMQ ask instead of `System`: the machine's time, and what a test has let pass. */
public final class PassedTime {
    private static final MappedByteBuffer PASSED = passed(); // milliseconds, which another process writes

    private PassedTime() {}

    private static MappedByteBuffer passed() {
        try (RandomAccessFile file = new RandomAccessFile(System.getProperty("redrive.passed"), "r")) {
            return file.getChannel().map(FileChannel.MapMode.READ_ONLY, 0, 8);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    public static long currentTimeMillis() {
        return System.currentTimeMillis() + PASSED.getLong(0);
    }
}
