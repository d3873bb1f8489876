// Apache Kafka's own classes at the other end of a pipe; see kafka_jvm.py for who asks.
//
// A question: int32 size, then one byte of work, the message's name, a version and a list of items. The answer: for
// each item one byte (0 well, 1 not), and two byte strings.
//   'R' rewrite: an item is a message's bytes; comes back as Kafka's class reads and writes it
//   'P' parse:   an item is a message's bytes; nothing comes back but whether Kafka's class reads them
//   'M' make:    an item is a blob of choices; comes back as the bytes of a message that Kafka's class made of it, and
//                the same as JSON
//   'E' errors:  no name, no items; one item comes back for each error code: "code name retriable"

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BinaryNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.IntNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.InputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class KafkaOracle {
    static final ObjectMapper MAPPER = new ObjectMapper(new JsonFactory().enable(JsonParser.Feature.ALLOW_COMMENTS));
    static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    static final String[] LETTERS = {"a", "Z", "0", "-", "_", ".", " ", "é", "→", "\uD835\uDD4A", "\0", "\u007f"};

    /** One message: its class, its JSON converter and its definition. */
    static final class Kind {
        final Constructor<?> blank;
        final Method fromJson;
        final JsonNode definition;
        final Map<String, JsonNode> common = new HashMap<>();

        Kind(String name) throws Exception {
            // Headers and the consumer protocol's structs are classes of their own name, messages end in Data.
            Class<?> data = find("org.apache.kafka.common.message." + name + "Data", "org.apache.kafka.common.message." + name);
            blank = data.getConstructor();
            fromJson = Class.forName(data.getName() + "JsonConverter").getMethod("read", JsonNode.class, short.class);
            try (InputStream text = KafkaOracle.class.getClassLoader().getResourceAsStream("common/message/" + name + ".json")) {
                definition = MAPPER.readTree(text);
            }
            for (JsonNode each : definition.path("commonStructs")) {
                common.put(each.get("name").asText(), each.get("fields"));
            }
        }

        static Class<?> find(String... names) throws ClassNotFoundException {
            for (String name : names) {
                try {
                    return Class.forName(name);
                } catch (ClassNotFoundException missing) {
                    continue;
                }
            }
            throw new ClassNotFoundException(names[0]);
        }
    }

    /** A blob read from the front; one that is used up chooses the simplest. */
    static final class Choices {
        final byte[] blob;
        int at = 0;

        Choices(byte[] blob) {
            this.blob = blob;
        }

        int next() {
            return at < blob.length ? blob[at++] & 0xff : 0;
        }

        byte[] next(int size) {
            byte[] bytes = new byte[size];
            for (int i = 0; i < size; i++) {
                bytes[i] = (byte) next();
            }
            return bytes;
        }

        int size() {
            int first = next();
            return first < 250 ? first % 6 : 122 + first % 8;
        }

        long integer(int bits) {
            int how = next();
            long high = bits == 64 ? Long.MAX_VALUE : (1L << (bits - 1)) - 1;
            if (how < 100) {
                return how % 8;
            }
            if (how < 150) {
                return new long[] {-high - 1, high, -1, high / 2}[how % 4];
            }
            long value = 0;
            for (int i = 0; i < bits / 8; i++) {
                value = value << 8 | next();
            }
            return value << (64 - bits) >> (64 - bits);
        }
    }

    static final Map<String, Kind> KINDS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            int size;
            try {
                size = in.readInt();
            } catch (EOFException closed) {
                return;
            }
            byte[] question = new byte[size];
            in.readFully(question);
            byte[] answer = answer(ByteBuffer.wrap(question));
            out.writeInt(answer.length);
            out.write(answer);
            out.flush();
        }
    }

    static byte[] answer(ByteBuffer question) throws Exception {
        byte work = question.get();
        String name = new String(bytes(question), StandardCharsets.UTF_8);
        short version = question.getShort();
        ByteArrayOutputStream collected = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(collected);
        if (work == 'E') {
            for (Errors each : Errors.values()) {
                String line = each.code() + " " + each.name() + " " + (each.exception() instanceof RetriableException);
                out.writeByte(0);
                out.writeInt(line.length());
                out.writeBytes(line);
                out.writeInt(0);
            }
            return collected.toByteArray();
        }
        Kind kind = kind(name);
        while (question.hasRemaining()) {
            byte[] item = bytes(question);
            byte[] first;
            byte[] second = new byte[0];
            int verdict = 0;
            try {
                if (work == 'R') {
                    first = write(read(kind, item, version), version);
                } else if (work == 'P') {
                    read(kind, item, version);
                    first = new byte[0];
                } else {
                    ObjectNode json = struct(kind, kind.definition.get("fields"), version, new Choices(item));
                    first = write((Message) kind.fromJson.invoke(null, json, version), version);
                    second = MAPPER.writeValueAsBytes(json);
                }
            } catch (InvocationTargetException error) {
                verdict = 1;
                first = error.getCause().toString().getBytes(StandardCharsets.UTF_8);
            } catch (RuntimeException error) {
                verdict = 1;
                first = error.toString().getBytes(StandardCharsets.UTF_8);
            }
            out.writeByte(verdict);
            out.writeInt(first.length);
            out.write(first);
            out.writeInt(second.length);
            out.write(second);
        }
        return collected.toByteArray();
    }

    static Kind kind(String name) throws Exception {
        Kind known = KINDS.get(name);
        if (known == null) {
            known = new Kind(name);
            KINDS.put(name, known);
        }
        return known;
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.getInt()];
        buffer.get(bytes);
        return bytes;
    }

    static Message read(Kind kind, byte[] bytes, short version) throws Exception {
        Message message = (Message) kind.blank.newInstance();
        ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
        message.read(readable, version);
        if (readable.remaining() != 0) {
            throw new IllegalStateException(readable.remaining() + " bytes were left over");
        }
        return message;
    }

    static byte[] write(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("Kafka's own size is " + buffer.remaining() + " bytes too large");
        }
        return buffer.array();
    }

    static ObjectNode struct(Kind kind, JsonNode fields, short version, Choices choices) {
        ObjectNode node = NODES.objectNode();
        for (JsonNode field : fields) {
            if (!covers(field.get("versions"), version)) {
                continue;
            }
            int first = choices.next();
            String name = lowerFirst(field.get("name").asText());
            String type = field.get("type").asText();
            if (covers(field.get("taggedVersions"), version) && first < 100) {
                continue;
            }
            if (covers(field.get("nullableVersions"), version) && first > 0 && first < 50) {
                node.set(name, NullNode.instance);
            } else if (type.startsWith("[]")) {
                ArrayNode array = NODES.arrayNode();
                for (int left = Math.max(0, first - 100) % 4; left > 0; left--) {
                    array.add(one(kind, field, type.substring(2), version, choices));
                }
                node.set(name, array);
            } else {
                node.set(name, one(kind, field, type, version, choices));
            }
        }
        return node;
    }

    static JsonNode one(Kind kind, JsonNode field, String type, short version, Choices choices) {
        switch (type) {
            case "bool":
                return BooleanNode.valueOf(choices.next() > 127);
            case "int8":
                return IntNode.valueOf((int) choices.integer(8));
            case "int16":
                return IntNode.valueOf((int) choices.integer(16));
            case "uint16":
                return IntNode.valueOf((int) choices.integer(16) & 0xffff);
            case "int32":
                return IntNode.valueOf((int) choices.integer(32));
            case "int64":
                return LongNode.valueOf(choices.integer(64));
            case "uuid":
                boolean small = choices.next() <= 63;
                ByteBuffer id = ByteBuffer.wrap(small ? new byte[16] : choices.next(16));
                return TextNode.valueOf(new Uuid(id.getLong(), small ? choices.next() : id.getLong(8)).toString());
            case "string":
                StringBuilder text = new StringBuilder();
                for (int left = choices.size(); left > 0; left--) {
                    text.append(LETTERS[choices.next() % LETTERS.length]);
                }
                return TextNode.valueOf(text.toString());
            case "bytes":
            case "records":
                return BinaryNode.valueOf(choices.next(choices.size()));
            default:
                JsonNode fields = field.has("fields") ? field.get("fields") : kind.common.get(type);
                return struct(kind, fields, version, choices);
        }
    }

    static boolean covers(JsonNode span, short version) {
        if (span == null || span.asText().equals("none")) {
            return false;
        }
        String text = span.asText();
        if (text.endsWith("+")) {
            return version >= Short.parseShort(text.substring(0, text.length() - 1));
        }
        String[] ends = text.split("-");
        return version >= Short.parseShort(ends[0]) && version <= Short.parseShort(ends[ends.length - 1]);
    }

    static String lowerFirst(String name) {
        return Character.toLowerCase(name.charAt(0)) + name.substring(1);
    }
}
